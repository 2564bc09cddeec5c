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
	cfg   *Config
	files map[*source]*joinedFile
	found Findings
}

// joinedFile is the progress of a file.
type joinedFile struct {
	next    int    // number of the next chunk
	packets uint64 // in the chunks before it
	follow  followers
	waiting map[int]endedChunk
}

// endedChunk is what a chunk came to, its packets numbered from 1.
type endedChunk struct {
	packets  uint64
	taps     []TapCounts
	passages []*finding.Passage // of the taps, if the file has several chunks
}

func newJoiner(cfg *Config) *joiner {
	return &joiner{cfg: cfg, files: make(map[*source]*joinedFile)}
}

// end takes a chunk that is read, and hands on what waited for it.
func (j *joiner) end(ctx context.Context, p piece, chunk endedChunk) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := j.files[p.src]
	if f == nil {
		f = &joinedFile{follow: newFollowers(j.cfg), waiting: make(map[int]endedChunk)}
		j.files[p.src] = f
	}
	f.waiting[p.chunk.Index] = chunk
	for {
		c, ended := f.waiting[f.next]
		if !ended {
			return nil
		}
		delete(f.waiting, f.next)
		if err := f.follow.next(c.taps, c.passages); err != nil {
			return fmt.Errorf("replay %q: %w", p.src.path, err)
		}
		for i := range c.taps {
			j.found.Note(c.taps[i].Findings)
			c.taps[i].Findings = numberedFrom(f.packets, c.taps[i].Findings)
		}
		f.next, f.packets = f.next+1, f.packets+c.packets
		if err := writeTaps(ctx, j.cfg, p.src, c.taps); err != nil {
			return err
		}
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
