package main

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	rpc "connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/wire"
)

// TestCollectObservations: a transport pushes the tags and reflections of captures in batches,
// some of them twice and across a reload. The collector stores the windows that a replay of the
// captures stores, with their names.
func TestCollectObservations(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	start := time.Now().Add(-time.Hour).Truncate(time.Minute) // exporters' rows are at most 7 days old
	e := emit(t, "--scenario", "quickstart", "--set", "start="+start.Format(time.RFC3339))
	files := e.captures(t)
	replayed, dir := newStore(t, env, filepath.Join(t.TempDir(), "store")), t.TempDir()
	summary := replayInto(t, env, replayed, e, files)
	dsn, address := newStore(t, env, filepath.Join(dir, "store")), freeAddress(t)
	file := filepath.Join(dir, "collect.yaml")
	writeFile(t, file, "collect:\n  ingest: {listen: "+address+", anonymous: nic}\n")
	c := runUntil(t, env, "exporters at "+address, "collect", "--config", file, "--fabric", e.fabric(), "--store", dsn)
	client := wire.NewIngestServiceClient(http.DefaultClient, "http://"+address)
	push := func(m *wire.Observations, want wire.Outcome) {
		t.Helper()
		answer, err := client.Push(t.Context(), rpc.NewRequest(&wire.PushRequest{Observations: []*wire.Observations{m}}))
		if err != nil {
			t.Fatalf("push %s %d: %v\n%s", m.GetStream(), m.GetSeq(), err, c.log())
		}
		if got := answer.Msg.GetOutcomes(); !slices.Equal(got, []wire.Outcome{want}) {
			t.Fatalf("push %s %d: %v, want %s\n%s", m.GetStream(), m.GetSeq(), got, want, c.log())
		}
	}
	var earlier []*wire.Observations
	pushed := uint64(0)
	for i, path := range files {
		batches := batchesOf(t, path, e.fabric(), 1500*time.Millisecond)
		for k, m := range batches {
			pushed += uint64(len(m.GetKind()))
			push(m, wire.Outcome_OUTCOME_STORED)
			if k%2 == 0 {
				push(m, wire.Outcome_OUTCOME_REPEAT)
			}
		}
		if i == 0 { // a reload gives rows another epoch
			earlier = batches
			writeFile(t, file, "collect:\n  ingest: {listen: "+address+", anonymous: nic}\ndecode: {inner_tags: true}\n")
			_ = c.cmd.Process.Signal(syscall.SIGHUP)
			c.waitLog("reloaded", 1)
		}
	}
	for _, m := range earlier {
		push(m, wire.Outcome_OUTCOME_REPEAT)
	}
	c.end(syscall.SIGTERM)
	got, want := storedWindows(t, env, dsn), storedWindows(t, env, replayed)
	if len(want) == 0 || !maps.Equal(got, want) {
		t.Errorf("%d windows, want %d as replayed", len(got), len(want))
		for key, w := range want {
			if got[key] != w {
				t.Fatalf("%s: %+v, want %+v", key, got[key], w)
			}
		}
	}
	if pushed != summary.Observations.In {
		t.Errorf("pushed %d observations, replayed %d", pushed, summary.Observations.In)
	}
	mustRun(t, env, "schema", "verify", "--store", dsn)
	if found := storedFindingsOf(t, env, dsn); len(found) > 0 {
		t.Errorf("found %+v: single observations of a transport are not searched", found)
	}
}

// TestCollectObservationsNames: without a fabric file, and long before the next round, rows have the
// names of the prefixes and locations that the collector met in a batch.
func TestCollectObservationsNames(t *testing.T) {
	t.Parallel()
	env := engineEnv(t)
	e := emit(t, "--scenario", "quickstart", "--set", "start="+time.Now().Add(-time.Hour).Format(time.RFC3339))
	dir, address := t.TempDir(), freeAddress(t)
	dsn, file := newStore(t, env, filepath.Join(dir, "store")), filepath.Join(dir, "collect.yaml")
	writeFile(t, file, "collect:\n  commit_interval: 1h\n  ingest: {listen: "+address+", anonymous: nic}\n")
	c := runUntil(t, env, "exporters at "+address, "collect", "--config", file, "--store", dsn)
	m := batchesOf(t, e.captures(t)[0], e.fabric(), time.Second)[0]
	client := wire.NewIngestServiceClient(http.DefaultClient, "http://"+address)
	if _, err := client.Push(t.Context(), rpc.NewRequest(&wire.PushRequest{Observations: []*wire.Observations{m}})); err != nil {
		t.Fatal(err)
	}
	text := ""
	named := func() bool {
		text = runBinary(t, env, "query", "cells", "--store", dsn, "--signal", "min_abw_ratio", "-o", "csv").stdout
		return strings.Contains(text, "10.0.1.0/24")
	}
	if !comes(named) {
		t.Errorf("the rows have no names:\n%s", text)
	}
	c.end(syscall.SIGTERM)
}

// batchesOf returns the tags and reflections of a capture, as decode prints them, in batches of a
// length. Each file is a stream.
func batchesOf(t *testing.T, path, fabricFile string, length time.Duration) (list []*wire.Observations) {
	t.Helper()
	n, err := config.OpenNetwork("", fabricFile)
	if err != nil {
		t.Fatal(err)
	}
	decoder, err := decode.New(n.Decode)
	if err != nil {
		t.Fatal(err)
	}
	r, err := capture.Open(path, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var batch capture.Batch
	var result decode.Result
	var m *wire.Observations
	first, last := int64(0), int64(0)
	for {
		err := r.ReadBatch(&batch)
		for i := range batch.N {
			f := &batch.Frames[i]
			in := window.FrameOf(f)
			decoder.DecodeFrame(decode.Framing{Link: decode.Ethernet}, &in, &result)
			for k := range result.N {
				o := &result.Obs[k]
				if window.SetCaptureFields(o, f); m == nil || o.TimeNS-first >= int64(length) {
					m = &wire.Observations{Stream: filepath.Base(path), Incarnation: 1, Seq: uint64(len(list) + 1)}
					list, first, last = append(list, m), o.TimeNS, 0
				}
				appendObservation(m, o, o.TimeNS-last)
				last = o.TimeNS
			}
		}
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func appendObservation(m *wire.Observations, o *decode.Observation, after int64) {
	flags := byte(0)
	if o.Tag.D {
		flags |= 1
	}
	if o.Flags&decode.HasAck != 0 {
		flags |= 2
	}
	m.TimeNs, m.FrameBytes, m.Acknowledgement = append(m.TimeNs, after), append(m.FrameBytes, o.Bytes), append(m.Acknowledgement, o.Ack)
	m.Source, m.Destination = append(m.Source, o.Src[:]...), append(m.Destination, o.Dst[:]...)
	m.SourcePort, m.DestinationPort = append(m.SourcePort, uint32(o.SrcPort)), append(m.DestinationPort, uint32(o.DstPort))
	m.Protocol, m.Kind, m.Flags = append(m.Protocol, o.Proto), append(m.Kind, byte(o.Kind)), append(m.Flags, flags)
	m.Encoding, m.Type = append(m.Encoding, byte(o.Tag.Layout.Index())), append(m.Type, o.Tag.T)
	m.Value, m.Locator = append(m.Value, o.Tag.S), append(m.Locator, uint32(o.Tag.LM))
}
