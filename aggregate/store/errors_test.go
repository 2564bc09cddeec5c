package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/native"
)

// namedUint binds a query parameter.
func namedUint(name string, v int) any { return clickhouse.Named(name, uint64(v)) }

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	target, err := ParseDSN("clickhouse://u:secret@" + address)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), Options{Writer: target.Options, Database: target.Database})
	if !errors.Is(err, ErrUnreachable) {
		t.Fatalf("%v, want ErrUnreachable", err)
	}
	for _, part := range []string{address, "refused", "start the server", "--store"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%q is not one line, or shows the password", err)
	}
}

func TestParseVersion(t *testing.T) {
	for text, ok := range map[string]bool{
		"26.7.2.1": true, "24.8.1.2684": true, "25.3": true, "24.10.1": true,
		"24.7.9.9": false, "23.8.16.40": false, "9.9": false,
	} {
		_, err := parseVersion(text)
		if (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
		if err != nil && (!errors.Is(err, ErrOldServer) || !strings.Contains(err.Error(), "24.8") || !strings.Contains(err.Error(), text)) {
			t.Errorf("%s: %q does not say what is needed", text, err)
		}
	}
	for _, text := range []string{"", "x.y", "24", "24.x"} {
		if _, err := parseVersion(text); err == nil || errors.Is(err, ErrOldServer) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTransient(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"refused":             {&net.OpError{Op: "dial", Err: errors.New("refused")}, true},
		"timeout":             {context.DeadlineExceeded, true},
		"too many parts":      {&clickhouse.Exception{Code: codeTooManyParts}, true},
		"too many partitions": {&clickhouse.Exception{Code: codeTooManyParts, Message: "Too many partitions for single INSERT block (more than 100)."}, false},
		"unknown table":       {&clickhouse.Exception{Code: codeUnknownTable}, false},
		"other":               {errors.New("column 3 is wrong"), false},
	} {
		if got := transient(c.err); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestBusy: a server that does not answer in time is busy; one that refuses connections is
// unreachable.
func TestBusy(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "unix", Err: err} }
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"no connection free":     {clickhouse.ErrAcquireConnTimeout, ErrBusy},
		"slow answer":            {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, ErrBusy},
		"slow hello":             {context.DeadlineExceeded, ErrBusy},
		"too many queries":       {&clickhouse.Exception{Code: codeTooManyQueries}, ErrBusy},
		"refused":                {dial(syscall.ECONNREFUSED), ErrUnreachable},
		"no answer to a connect": {dial(os.ErrDeadlineExceeded), ErrUnreachable},
		"gone":                   {io.ErrUnexpectedEOF, ErrUnreachable},
	} {
		s := &Store{host: "embedded"}
		if err := s.describe("read cells", c.err); !errors.Is(err, c.want) || errors.Is(err, ErrBusy) == errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestWriteBlockRefuses(t *testing.T) {
	s := openStore(t)
	for name, b := range map[string]*aggregate.Block{
		"resolution": {Resolution: int64(7 * time.Second)},
		"before":     {Resolution: int64(time.Second), WindowStart: -1},
		"after":      {Resolution: int64(time.Second), WindowStart: aggregate.EndOfTime},
	} {
		if err := s.WriteBlock(t.Context(), b); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestEndsOfTime stores the first and the last possible windows.
func TestEndsOfTime(t *testing.T) {
	sequential(t)
	s := openStore(t)
	for _, g := range []time.Duration{time.Millisecond, time.Second, time.Minute} {
		for _, start := range []int64{0, aggregate.EndOfTime - int64(time.Minute)} {
			r := row{resolution: int64(g), window: start, signal: 1, kind: 1, observations: 15}
			write(t, s, blocks([]row{r}))
			from := time.Unix(0, start)
			cells, err := s.Cells(t.Context(), Question{Signal: 1, From: from, To: from.Add(time.Minute), Resolution: g})
			if err != nil || len(cells) != 1 || cells[0].Observations != 15 {
				t.Errorf("%s at %s: %d cells, %v", g, from.UTC(), len(cells), err)
			}
		}
	}
}

func TestReadOnlyStore(t *testing.T) {
	sequential(t)
	o := engineOptions(t)
	if err := open(t, o).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Writer, o.Migrator = nil, nil
	s := open(t, o)
	if err := s.WriteBlock(t.Context(), &aggregate.Block{}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("write: %v", err)
	}
	if err := s.WriteEpoch(t.Context(), 1, ""); !errors.Is(err, ErrReadOnly) {
		t.Errorf("write epoch: %v", err)
	}
	if _, err := s.Cells(t.Context(), testQuestion()); err != nil {
		t.Error(err)
	}
	if err := s.reader.Exec(t.Context(), "DROP TABLE csigscope.partials_1s"); err == nil {
		t.Error("a reader dropped a table")
	}
}

// TestMalformedAnswer: for a server that breaks the protocol the user gets one line, which names
// it.
func TestMalformedAnswer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		// An exception whose name has 2^40 bytes.
		_, _ = conn.Write(binary.AppendUvarint([]byte{proto.ServerException, 1, 0, 0, 0}, 1<<40))
		_, _ = io.Copy(io.Discard, conn)
	}()
	target, err := ParseDSN("clickhouse://default:@" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), Options{Reader: target.Options})
	if text := fmt.Sprint(err); !errors.Is(err, native.ErrMalformed) || !strings.Contains(text, listener.Addr().String()) || strings.Contains(text, "\n") {
		t.Error(text)
	}
}
