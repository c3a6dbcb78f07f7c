// kafka-go, as its documentation recommends for consumer groups: a Reader with a GroupID,
// FetchMessage, and CommitMessages once the messages are processed.
package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"kgroup.benchmarks/worker"
)

func client(job worker.Job, note worker.Note, ended <-chan struct{}) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:                strings.Split(job.Servers, ","),
		GroupID:                job.Group,
		Topic:                  job.Topic,
		SessionTimeout:         job.Session,
		HeartbeatInterval:      job.Heartbeat,
		StartOffset:            kafka.FirstOffset,
		WatchPartitionChanges:  true,
		PartitionWatchInterval: job.Refresh,
		MaxBytes:               10e6,                // as in its examples
		QueueCapacity:          max(100, job.Batch), // 100 is its default
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-ended; cancel() }()
	for {
		batch, err := fetch(ctx, reader, job.Batch)
		if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
			return reader.Close()
		}
		if err != nil {
			return err
		}
		time.Sleep(job.Work)
		note(len(batch), func(index int) worker.Row {
			one := batch[index]
			return worker.Row{Partition: one.Partition, Offset: one.Offset, Value: one.Value}
		})
		if job.Commit {
			if err := reader.CommitMessages(context.Background(), batch...); err != nil {
				println("commit refused:", err.Error())
			}
		}
	}
}

// fetch waits for a message, and takes those that follow at once. It waits for one more, a
// millisecond at most, only where its partition has more: a message that is the last one so far
// must not be held back.
func fetch(ctx context.Context, reader *kafka.Reader, most int) ([]kafka.Message, error) {
	one, err := reader.FetchMessage(ctx)
	batch := []kafka.Message{one}
	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	for err == nil && len(batch) < most && follows(reader, one) {
		one, err = reader.FetchMessage(soon)
		if errors.Is(err, context.DeadlineExceeded) {
			return batch, nil
		}
		if err == nil {
			batch = append(batch, one)
		}
	}
	return batch, err
}

func follows(reader *kafka.Reader, one kafka.Message) bool {
	return one.Offset+1 < one.HighWaterMark || reader.Stats().QueueLength > 0
}

func main() { worker.Main(client) }
