package store

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// points are the places where a process may kill itself. Each is passed many times; the process
// ends at one pass of one of them.
type points struct {
	name string // empty: nowhere
	pass int    // from 1

	mu     sync.Mutex
	passed map[string]int
}

// anyMoment is not a place: it is some time after the start.
const anyMoment = "any moment"

// pointGroups are the points, by their name in the report.
var pointGroups = map[string][]string{
	"append":      {"before append", "half of append", "after append"},
	"fsync":       {"before fsync", "after fsync", "before folder fsync", "after folder fsync"},
	"create":      {"before create", "after create"},
	"send":        {"before send", "during send", "after send"},
	"acknowledge": {"before acknowledge", "half of acknowledge", "after acknowledge"},
	"delete":      {"before delete", "after delete"},
	anyMoment:     {anyMoment},
}

// at passes a point.
func (p *points) at(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed[name]++
	if name == p.name && p.passed[name] == p.pass {
		die()
	}
}

// willDie reports whether the next pass of a point is the last one.
func (p *points) willDie(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return name == p.name && p.passed[name]+1 == p.pass
}

// die is kill -9: nothing is closed, flushed or deferred.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// deadlyDisk is the operating system's file system, with points in it.
type deadlyDisk struct {
	outbox.OS
	*points
}

// isSegment distinguishes segments from the position file, which acknowledges records.
func isSegment(name string) bool { return strings.HasSuffix(name, ".seg") }

// Open implements outbox.FS.
func (d *deadlyDisk) Open(name string, flag int) (outbox.File, error) {
	if flag&(os.O_CREATE|os.O_RDWR) == 0 {
		return d.OS.Open(name, flag)
	}
	write := "acknowledge"
	if isSegment(name) {
		write = "append"
		d.at("before create")
		defer d.at("after create")
	}
	f, err := d.OS.Open(name, flag)
	return &deadlyFile{f, d.points, write}, err
}

// Remove implements outbox.FS.
func (d *deadlyDisk) Remove(name string) error {
	d.at("before delete")
	defer d.at("after delete")
	return d.OS.Remove(name)
}

// SyncDir implements outbox.FS.
func (d *deadlyDisk) SyncDir(dir string) error {
	d.at("before folder fsync")
	defer d.at("after folder fsync")
	return d.OS.SyncDir(dir)
}

type deadlyFile struct {
	outbox.File
	*points
	write string // name of a write to it
}

// Write implements outbox.File.
func (f *deadlyFile) Write(b []byte) (int, error) { return f.pass(b, f.File.Write) }

// WriteAt implements outbox.File.
func (f *deadlyFile) WriteAt(b []byte, at int64) (int, error) {
	return f.pass(b, func(b []byte) (int, error) { return f.File.WriteAt(b, at) })
}

func (f *deadlyFile) pass(b []byte, write func([]byte) (int, error)) (int, error) {
	f.at("before " + f.write)
	defer f.at("after " + f.write)
	if half := "half of " + f.write; f.willDie(half) {
		_, _ = write(b[:len(b)/2])
		f.at(half)
	} else {
		f.at(half)
	}
	return write(b)
}

// Sync implements outbox.File.
func (f *deadlyFile) Sync() error {
	f.at("before fsync")
	defer f.at("after fsync")
	return f.File.Sync()
}

// deadlyWire is the connection to the server, with points in it.
type deadlyWire struct {
	http.RoundTripper
	*points
}

// RoundTrip implements http.RoundTripper.
func (w *deadlyWire) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(request.URL.Query().Get("query"), "INSERT") {
		return w.RoundTripper.RoundTrip(request)
	}
	w.at("before send")
	defer w.at("after send")
	if w.willDie("during send") {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		request.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), &lastWord{w.points}))
	} else {
		w.at("during send")
	}
	return w.RoundTripper.RoundTrip(request)
}

// lastWord kills the process when the rest of a body is read.
type lastWord struct{ *points }

func (l *lastWord) Read([]byte) (int, error) {
	time.Sleep(time.Millisecond) // lets the bytes already read leave the process
	l.at("during send")
	return 0, io.EOF
}
