package replay

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/csigscope/csigscope/aggregate/finding"
)

// joiner passes on the counts of chunks' taps, file by file in the order of the chunks. Chunks end
// in any order, and the numbers of a chunk's packets in the file are known only after all earlier
// chunks have ended. Workers take chunks in order, so few of them wait. It is safe for concurrent
// use.
type joiner struct {
	mu    sync.Mutex
	next  *sync.Cond // another chunk is the next
	cfg   *Config
	files map[*source]*joinedFile
	found Findings
}

// joinedFile is the progress of a file.
type joinedFile struct {
	next    int    // number of the next chunk
	packets uint64 // in the chunks before it
	follow  followers
	chunks  map[int]*joinedChunk // from next on, of which there is something
}

// joinedChunk is what a chunk came to that was not handed on yet, its packets numbered from 1.
type joinedChunk struct {
	sections []sectionTaps
	taps     int // of the sections
	ended    bool
	packets  uint64 // once it has ended
}

// sectionTaps is what the taps of a section came to in a chunk.
type sectionTaps struct {
	taps     []TapCounts
	passages []*finding.Passage // of the taps, if the file has several chunks
}

// maxWaiting bounds the taps of a chunk that wait, which take 4 KB each: a chunk may hold any
// number of sections.
const maxWaiting = 4096

func newJoiner(cfg *Config) *joiner {
	j := &joiner{cfg: cfg, files: make(map[*source]*joinedFile)}
	j.next = sync.NewCond(&j.mu)
	return j
}

// add takes a section of a chunk that is read, and hands it on unless it has to wait. It
// blocks until the chunk is the next where too much of it waits, or until ctx ends. The next
// chunk never blocks, and a core is at work on it.
func (j *joiner) add(ctx context.Context, p piece, section sectionTaps) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	f, c := j.chunk(p)
	if c.taps >= maxWaiting {
		defer context.AfterFunc(ctx, j.wake)()
	}
	for c.taps >= maxWaiting {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		j.next.Wait()
	}
	c.sections = append(c.sections, section)
	c.taps += len(section.taps)
	return j.handOn(ctx, p.src, f)
}

func (j *joiner) wake() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next.Broadcast()
}

// end takes note that a chunk of so many packets is read, and hands on what waited for it.
func (j *joiner) end(ctx context.Context, p piece, packets uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	f, c := j.chunk(p)
	c.ended, c.packets = true, packets
	return j.handOn(ctx, p.src, f)
}

func (j *joiner) chunk(p piece) (*joinedFile, *joinedChunk) {
	f := j.files[p.src]
	if f == nil {
		f = &joinedFile{follow: newFollowers(j.cfg), chunks: make(map[int]*joinedChunk)}
		j.files[p.src] = f
	}
	c := f.chunks[p.chunk.Index]
	if c == nil {
		c = new(joinedChunk)
		f.chunks[p.chunk.Index] = c
	}
	return f, c
}

// handOn hands on all that does not have to wait.
func (j *joiner) handOn(ctx context.Context, src *source, f *joinedFile) error {
	for {
		c := f.chunks[f.next]
		if c == nil {
			return nil
		}
		for _, section := range c.sections {
			if err := f.follow.next(section.taps, section.passages); err != nil {
				return fmt.Errorf("replay %q: %w", src.path, err)
			}
			for i := range section.taps {
				j.found.Note(section.taps[i].Findings)
				section.taps[i].Findings = numberedFrom(f.packets, section.taps[i].Findings)
			}
			if err := writeTaps(ctx, j.cfg, src, section.taps); err != nil {
				return err
			}
		}
		c.sections, c.taps = nil, 0
		if !c.ended {
			j.next.Broadcast()
			return nil
		}
		delete(f.chunks, f.next)
		f.next, f.packets = f.next+1, f.packets+c.packets
	}
}

// numberedFrom adds the number of earlier packets in the file to the packet numbers of findings.
func numberedFrom(before uint64, list []finding.Finding) []finding.Finding {
	if before == 0 {
		return list
	}
	list = slices.Clone(list)
	for i := range list {
		list[i].Packets = slices.Clone(list[i].Packets)
		for k := range list[i].Packets {
			list[i].Packets[k].Number += before
		}
	}
	return list
}
