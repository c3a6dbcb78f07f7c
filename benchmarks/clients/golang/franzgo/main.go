// franz-go, as its documentation recommends for manual commits: PollRecords with BlockRebalanceOnPoll,
// process, CommitRecords, AllowRebalance.
package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kgroup.benchmarks/worker"
)

func client(job worker.Job, note worker.Note, ended <-chan struct{}) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(job.Servers, ",")...),
		kgo.ConsumerGroup(job.Group),
		kgo.ConsumeTopics(job.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	}
	if job.Heartbeat > 0 {
		options = append(options,
			kgo.SessionTimeout(job.Session), kgo.HeartbeatInterval(job.Heartbeat))
	}
	if job.Refresh > 0 {
		options = append(options,
			kgo.MetadataMaxAge(job.Refresh), kgo.MetadataMinAge(min(job.Refresh, 5*time.Second)))
	}
	group, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer group.CloseAllowingRebalance()
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-ended; cancel() }()
	for {
		fetches := group.PollRecords(ctx, job.Batch)
		if ctx.Err() != nil {
			return nil
		}
		if records := fetches.Records(); len(records) > 0 {
			time.Sleep(job.Work)
			note(len(records), func(index int) worker.Row {
				one := records[index]
				return worker.Row{Partition: int(one.Partition), Offset: one.Offset, Value: one.Value}
			})
			if job.Commit {
				if err := group.CommitRecords(context.Background(), records...); err != nil {
					println("commit refused:", err.Error())
				}
			}
		}
		group.AllowRebalance()
	}
}

func main() { worker.Main(client) }
