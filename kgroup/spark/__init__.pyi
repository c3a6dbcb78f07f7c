from .api import batches as batches, foreach_batch as foreach_batch
from .batch import BatchStage as BatchStage, MicroBatch as MicroBatch
from .batch_loop import Batches as Batches
from .frames import read_ranges as read_ranges
from .offset_ranges import OffsetRange as OffsetRange, batch_id as batch_id
from .reader_settings import ReaderSettings as ReaderSettings
