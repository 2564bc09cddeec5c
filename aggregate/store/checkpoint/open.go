package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

const (
	// maxPlaces bounds the checkpoints of a folder.
	maxPlaces = 32
	// openPatience is how long Open waits for others that are opening.
	openPatience = 5 * time.Second
)

// place is one that nobody else has.
type place struct {
	dir   string
	owner io.Closer
	time  int64 // of its checkpoint; 0 for a free one
}

// Open takes the place of a name into possession, until Close. It is ErrOwned when
// another process has that. Checkpoints that nobody has come back to are removed.
func Open(o Options) (*File, error) {
	o = o.withDefaults()
	lock, err := o.lock()
	if err != nil {
		return nil, fmt.Errorf("open checkpoints in %s: %w", o.Dir, err)
	}
	f, err := o.claim()
	if err := errors.Join(err, lock.Close()); err != nil {
		return nil, fmt.Errorf("open checkpoints in %s: %w", o.Dir, err)
	}
	return f, nil
}

// claim finds the place and writes the name into it, so that others see whose it is
// before the first checkpoint.
func (o *Options) claim() (*File, error) {
	p, err := o.find()
	if err != nil {
		return nil, err
	}
	f := &File{o: *o, dir: p.dir, owner: p.owner}
	if p.time != 0 {
		return f, nil
	}
	if err := f.save(claimNumber, nil); err != nil {
		o.Logger.Error("place for checkpoints cannot be written", slog.String("error", err.Error()))
	}
	return f, nil
}

// lock keeps others from opening at the same time, so that a place that is owned is one
// in use.
func (o *Options) lock() (io.Closer, error) {
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		lock, err := o.FS.Own(o.Dir)
		if !errors.Is(err, outbox.ErrOwned) || time.Since(begun) > openPatience {
			return lock, err
		}
	}
}

// find is the place of the name or, if there is none, a free one, a new one, or that of
// the oldest checkpoint.
func (o *Options) find() (*place, error) {
	var own, free, oldest *place
	var found []*place
	defer func() {
		for _, p := range found {
			if p.owner != nil {
				p.owner.Close()
			}
		}
	}()
	take := func(p *place) *place {
		taken := *p
		p.owner = nil
		return &taken
	}
	for i := 1; i <= maxPlaces; i++ {
		dir := filepath.Join(o.Dir, strconv.Itoa(i))
		if _, err := o.FS.List(dir); errors.Is(err, fs.ErrNotExist) && (own != nil || free != nil) {
			break
		}
		p, ours, err := o.look(dir)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		found = append(found, p)
		switch {
		case ours && own == nil:
			own = p
		case p.time == 0 && free == nil:
			free = p
		case p.time != 0 && (oldest == nil || p.time < oldest.time):
			oldest = p
		}
	}
	if own != nil {
		return take(own), nil
	}
	if free != nil {
		return take(free), nil
	}
	if oldest == nil {
		return nil, fmt.Errorf("%w: all %d places", outbox.ErrOwned, maxPlaces)
	}
	o.Logger.Warn("oldest checkpoint removed: too many are left", slog.String("dir", oldest.dir))
	if err := removeAll(o.FS, oldest.dir); err != nil {
		return nil, err
	}
	oldest.time = 0
	return take(oldest), nil
}

// look takes a place into possession, nil if that cannot be, and tells whether it is
// that of the name. What is stale or damaged in it is removed.
func (o *Options) look(dir string) (p *place, ours bool, err error) {
	owner, err := o.FS.Own(dir)
	owned := errors.Is(err, outbox.ErrOwned)
	if err != nil && !owned {
		return nil, false, err
	}
	h, err := o.peek(dir)
	ours = h != nil && h.name == o.Name
	var why error
	switch {
	case owned && ours:
		return nil, false, fmt.Errorf("%s: %w", dir, outbox.ErrOwned)
	case owned:
		return nil, false, nil
	case errors.Is(err, ErrDamaged):
		why = err
	case err != nil:
		o.Logger.Warn("checkpoint left alone", slog.String("dir", dir), slog.String("reason", err.Error()))
		return nil, false, owner.Close()
	case h == nil:
		return &place{dir: dir, owner: owner}, false, nil
	default:
		age := o.Now().Sub(time.Unix(0, h.time))
		if h.number == claimNumber && !ours {
			return &place{dir: dir, owner: owner}, false, nil
		}
		if age <= o.MaxAge {
			return &place{dir: dir, owner: owner, time: max(h.time, 1)}, ours, nil
		}
		why = fmt.Errorf("nobody has come back to it for %s", age.Round(time.Second))
	}
	o.Logger.Warn("checkpoint removed", slog.String("dir", dir), slog.String("reason", why.Error()))
	if err := removeAll(o.FS, dir); err != nil {
		return nil, false, errors.Join(err, owner.Close())
	}
	return &place{dir: dir, owner: owner}, false, nil
}

// peek reads the header in a place; nil if there is no checkpoint.
func (o *Options) peek(dir string) (*header, error) {
	b, err := readFile(o.FS, dir, maxHeader)
	if err != nil || b == nil {
		return nil, err
	}
	return parseHeader(b)
}
