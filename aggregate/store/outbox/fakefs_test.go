package outbox

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// fakeFS is a file system in memory that fails on request, and tracks the data that would survive
// a power cut.
type fakeFS struct {
	mu      sync.Mutex
	files   map[string]*fakeFile
	durable map[string]*fakeFile // after a power cut
	owned   map[string]bool
	ops     int
	// fail decides about an operation by its number, from 1; part is the share of a write that is
	// done before it fails.
	fail func(n int, op string) (part float64, err error)
}

type fakeFile struct {
	data     []byte
	synced   int
	patches  []patch // writes in place since the last sync: the previous bytes
	poisoned bool    // a sync has failed: no later data reaches the disk, even if syncs succeed
}

type patch struct {
	at     int
	before []byte
}

func newFakeFS() *fakeFS {
	return &fakeFS{files: map[string]*fakeFile{}, durable: map[string]*fakeFile{}, owned: map[string]bool{}}
}

func (f *fakeFS) op(name string) (part float64, err error) {
	f.ops++
	if f.fail == nil {
		return 0, nil
	}
	return f.fail(f.ops, name)
}

func (f *fakeFS) Open(name string, flag int) (File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what := "open"
	if flag&os.O_CREATE != 0 {
		what = "create"
	}
	if _, err := f.op(what); err != nil {
		return nil, err
	}
	node := f.files[name]
	if node == nil && flag&os.O_CREATE == 0 {
		return nil, fs.ErrNotExist
	}
	if node != nil && flag&os.O_EXCL != 0 {
		return nil, fs.ErrExist
	}
	if node == nil {
		node = &fakeFile{}
		f.files[name] = node
	}
	if flag&os.O_TRUNC != 0 {
		node.data, node.synced = nil, 0
	}
	return &fakeHandle{f, node}, nil
}

func (f *fakeFS) List(dir string) ([]FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []FileInfo
	for name, node := range f.files {
		if filepath.Dir(name) == dir {
			list = append(list, FileInfo{filepath.Base(name), int64(len(node.data))})
		}
	}
	return list, nil
}

func (f *fakeFS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.op("rename"); err != nil {
		return err
	}
	f.files[to] = f.files[from]
	delete(f.files, from)
	return nil
}

func (f *fakeFS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.op("remove"); err != nil {
		return err
	}
	delete(f.files, name)
	return nil
}

func (f *fakeFS) SyncDir(string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.op("syncdir"); err != nil {
		return err
	}
	f.durable = map[string]*fakeFile{}
	for name, node := range f.files {
		f.durable[name] = node
	}
	return nil
}

func (f *fakeFS) Own(dir string) (io.Closer, error) {
	if f.owned[dir] {
		return nil, ErrOwned
	}
	f.owned[dir] = true
	return closer(func() { delete(f.owned, dir) }), nil
}

type closer func()

func (c closer) Close() error {
	c()
	return nil
}

type fakeHandle struct {
	fs   *fakeFS
	file *fakeFile
}

func (h *fakeHandle) Write(b []byte) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	part, err := h.fs.op("write")
	if err != nil {
		b = b[:int(part*float64(len(b)))]
	}
	h.file.data = append(h.file.data, b...)
	return len(b), err
}

func (h *fakeHandle) ReadAt(b []byte, at int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if _, err := h.fs.op("read"); err != nil {
		return 0, err
	}
	if at >= int64(len(h.file.data)) {
		return 0, io.EOF
	}
	n := copy(b, h.file.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *fakeHandle) WriteAt(b []byte, at int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	what := "overwrite"
	if int(at)+len(b) > len(h.file.data) {
		what = "write"
	}
	part, err := h.fs.op(what)
	if err != nil {
		b = b[:int(part*float64(len(b)))]
	}
	if grow := int(at) + len(b) - len(h.file.data); grow > 0 {
		h.file.data = append(h.file.data, make([]byte, grow)...)
	}
	h.file.patches = append(h.file.patches, patch{int(at), slices.Clone(h.file.data[at : int(at)+len(b)])})
	return copy(h.file.data[at:], b), err
}

func (h *fakeHandle) Truncate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if _, err := h.fs.op("truncate"); err != nil {
		return err
	}
	h.file.data = h.file.data[:size]
	return nil
}

func (h *fakeHandle) Sync() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if _, err := h.fs.op("sync"); err != nil {
		h.file.poisoned = true
		return err
	}
	if !h.file.poisoned {
		h.file.synced, h.file.patches = len(h.file.data), nil
	}
	return nil
}

func (h *fakeHandle) Close() error { return nil }

// killed is the file system as the next process finds it.
func (f *fakeFS) killed() *fakeFS {
	next := newFakeFS()
	for name, node := range f.files {
		data := slices.Clone(node.data)
		next.files[name] = &fakeFile{data: data, synced: len(data)}
		next.durable[name] = next.files[name]
	}
	return next
}

// powerCut is the file system after a power cut: any part of the unsynced data may have reached
// the disk.
func (f *fakeFS) powerCut(rng *rand.Rand) *fakeFS {
	next := newFakeFS()
	names := map[string]bool{}
	for name := range f.files {
		names[name] = true
	}
	for name := range f.durable {
		names[name] = true
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range names {
			if !yield(name) {
				return
			}
		}
	}) {
		node := f.durable[name]
		if rng.IntN(2) == 0 {
			node = f.files[name]
		}
		if node == nil {
			continue
		}
		synced := min(node.synced, len(node.data))
		data := slices.Clone(node.data[:synced+rng.IntN(len(node.data)-synced+1)])
		if len(data) > synced && rng.IntN(3) == 0 {
			clear(data[synced+rng.IntN(len(data)-synced):])
		}
		for _, p := range slices.Backward(node.patches) {
			if p.at >= len(data) { // was cut off
				continue
			}
			// Any part of a write in place may have reached the disk.
			old := p.before[:min(len(p.before), len(data)-p.at)]
			from := rng.IntN(len(old) + 1)
			copy(data[p.at+from:], old[from:])
		}
		next.files[name] = &fakeFile{data: data, synced: len(data)}
		next.durable[name] = next.files[name]
	}
	return next
}

// segments are the names of the segments, oldest first.
func (f *fakeFS) segments() []string {
	var names []string
	for name := range f.files {
		if strings.HasSuffix(name, segmentSuffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

var errInjected = errors.New("injected")
