from . import (
    admin as admin,
    embedded as embedded,
    kafka as kafka,
    memory as memory,
    plugin as plugin,
    simulation as simulation,
    spark as spark,
)
