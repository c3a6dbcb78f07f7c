// Package worker is what the Go clients share: the job, and the sinks of ../../sinks.py.
package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Job is what a worker does; see ../../job.py.
type Job struct {
	Servers, Topic, Group, Sink, Journal        string
	Partitions, Batch, Members, Rounds, Records int
	Session, Heartbeat, Refresh, Work           time.Duration
	Commit, Each                                bool
}

// Row is a processed record.
type Row struct {
	Partition int
	Offset    int64
	Value     []byte
}

// Note takes a batch that has been processed: the number of records, and what reads one of them.
type Note func(number int, row func(int) Row)

// Client runs one member until ended is closed.
type Client func(job Job, note Note, ended <-chan struct{}) error

// Check ends the program at an error.
func Check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Main runs the members of the job, as often as it says.
func Main(client Client) {
	job := parse(os.Args[1:])
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	group := job.Group
	for round := 0; round < job.Rounds; round++ {
		if job.Rounds > 1 {
			job.Group = fmt.Sprintf("%s-%d", group, round)
		}
		ended, once := make(chan struct{}), sync.Once{}
		end := func() { once.Do(func() { close(ended) }) }
		go func() {
			select {
			case <-signals:
				end()
			case <-ended:
			}
		}()
		note, done := sinks[job.Sink](job, end)
		run(client, job, note, ended)
		done()
	}
}

func run(client Client, job Job, note Note, ended <-chan struct{}) {
	var members sync.WaitGroup
	for number := 0; number < job.Members; number++ {
		mine := job
		if job.Members > 1 {
			mine.Group = fmt.Sprintf("%s-%d", job.Group, number)
		}
		members.Add(1)
		go func() {
			defer members.Done()
			Check(client(mine, note, ended))
		}()
	}
	members.Wait()
}

func parse(arguments []string) Job {
	given := map[string]string{}
	for _, argument := range arguments {
		name, value, _ := strings.Cut(argument, "=")
		given[name] = value
	}
	number := func(name string) int {
		value, err := strconv.Atoi(given[name])
		Check(err)
		return value
	}
	seconds := func(name string) time.Duration {
		value, err := strconv.ParseFloat(given[name], 64)
		Check(err)
		return time.Duration(value * float64(time.Second))
	}
	return Job{
		Servers: given["servers"], Topic: given["topic"], Group: given["group"],
		Sink: given["sink"], Journal: given["journal"],
		Partitions: number("partitions"), Batch: number("batch"), Members: number("members"),
		Rounds: number("rounds"), Records: number("records"),
		Session: seconds("session"), Heartbeat: seconds("heartbeat"), Work: seconds("work"),
		Refresh: seconds("refresh"),
		Commit:  given["commit"] == "true", Each: given["each"] == "true",
	}
}

// now is the machine's monotonic clock, as Python's time.monotonic.
func now() float64 {
	var at unix.Timespec
	Check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &at))
	return float64(at.Sec) + float64(at.Nsec)/1e9
}

var sinks = map[string]func(Job, func()) (Note, func()){
	"journal": journal, "meter": meter, "first": first,
}

func journal(job Job, _ func()) (Note, func()) {
	file, err := os.OpenFile(job.Journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	Check(err)
	note := func(number int, row func(int) Row) {
		done, lines := now(), strings.Builder{}
		for index := 0; index < number; index++ {
			one := row(index)
			fmt.Fprintf(&lines, "%d %d %s %f\n", one.Partition, one.Offset, one.Value, done)
		}
		_, err := file.WriteString(lines.String())
		Check(err)
	}
	return note, func() { Check(file.Close()) }
}

var sum int64 // keeps the compiler from leaving out what is read

func meter(job Job, end func()) (Note, func()) {
	var lock sync.Mutex
	var got, early int
	var began, ended, cpuBegan, cpuEnded float64
	note := func(number int, row func(int) Row) {
		lock.Lock()
		defer lock.Unlock()
		for index := 0; job.Each && index < number; index++ {
			one := row(index)
			sum += one.Offset + int64(len(one.Value))
		}
		if got == 0 {
			began, cpuBegan, early = now(), cpu(), number
		}
		if got < job.Records {
			got += number
			ended, cpuEnded = now(), cpu()
		}
		if got >= job.Records {
			end()
		}
	}
	return note, func() {
		records := float64(got - early)
		found, err := json.Marshal(map[string]float64{
			"rate": records / (ended - began), "cpu": (cpuEnded - cpuBegan) / records * 1e9,
		})
		Check(err)
		Check(os.WriteFile(job.Journal, found, 0o644))
	}
}

func cpu() float64 {
	var used unix.Rusage
	Check(unix.Getrusage(unix.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func first(job Job, end func()) (Note, func()) {
	began, got := now(), 0.0
	var lock sync.Mutex
	note := func(int, func(int) Row) {
		lock.Lock()
		defer lock.Unlock()
		if got == 0 {
			got = now()
			end()
		}
	}
	return note, func() {
		if got == 0 {
			return
		}
		file, err := os.OpenFile(job.Journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		Check(err)
		fmt.Fprintf(file, "%f %f\n", got-began, now()-got)
		Check(file.Close())
	}
}
