package replay

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/csigscope/csigscope/aggregate/finding"
)

// joiner writes the counts and findings of taps in the order of the chunks of each file, although
// workers finish chunks in any order: only when all earlier chunks have ended are the numbers of a
// chunk's packets in the file known. Workers begin chunks in order, so few results wait. It is safe
// for concurrent use.
type joiner struct {
	mu    sync.Mutex
	next  *sync.Cond // signals that another chunk is the next one
	cfg   *Config
	files map[*source]*joinedFile
	found Findings
}

// joinedFile is the progress of a file.
type joinedFile struct {
	next    int    // number of the next chunk
	packets uint64 // in the chunks before it
	follow  followers
	chunks  map[int]*joinedChunk // with results, from next on
}

// joinedChunk holds the results of a chunk that were not written yet. Its packets are numbered from 1.
type joinedChunk struct {
	sections []sectionTaps
	taps     int // number of taps in sections
	ended    bool
	packets  uint64 // once it has ended
}

// sectionTaps holds the results of the taps of one pcapng section in one chunk.
type sectionTaps struct {
	taps     []TapCounts
	passages []*finding.Passage // of these taps; nil if the file has one chunk
}

// maxWaiting bounds the waiting results of a chunk, in taps of about 4 KB each: a chunk may hold any
// number of sections.
const maxWaiting = 4096

func newJoiner(cfg *Config) *joiner {
	j := &joiner{cfg: cfg, files: make(map[*source]*joinedFile)}
	j.next = sync.NewCond(&j.mu)
	return j
}

// add adds the results of a section, and writes them if the chunk is the next one. If too many
// results of the chunk wait, add blocks until the chunk is the next one or ctx ends. This cannot
// deadlock: add never blocks for the next chunk, and a worker is reading it.
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
	return j.write(ctx, p.src, f)
}

func (j *joiner) wake() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next.Broadcast()
}

// end marks a chunk as read, and writes the results that waited for this.
func (j *joiner) end(ctx context.Context, p piece, packets uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	f, c := j.chunk(p)
	c.ended, c.packets = true, packets
	return j.write(ctx, p.src, f)
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

// write writes the results of the next chunk, and of the chunks after it as far as they have ended.
func (j *joiner) write(ctx context.Context, src *source, f *joinedFile) error {
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
