package replay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/csigscope/csigscope/aggregate/feed"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// ExamineConfig is what Examine needs.
type ExamineConfig struct {
	Files   []string // or folders of such
	Decode  decode.Config
	Finding finding.Config
	// Place says where a tap stands, by the name of its interface, or else of its file.
	Place func(name string) (finding.Place, error)
	// Progress, unless nil, is told how many bytes were read.
	Progress func(bytes int64)
}

// Examined is what was looked at, and found.
type Examined struct {
	Packets, Observations uint64
	From, To              int64 // of the first and the last observation, Unix ns; 0 without any
	Skipped               feed.Links
	Decoded               decode.Counters
	Findings              []finding.Finding
}

// Examine looks at each observation of captures for what breaks the protocol or
// contradicts the configuration. Where captures end early, there is a result of what could
// be read beside the error.
func Examine(ctx context.Context, cfg ExamineConfig) (*Examined, error) {
	d, err := decode.New(cfg.Decode)
	if err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	f, err := finding.New(cfg.Finding)
	if err != nil {
		return nil, fmt.Errorf("examine: %w", err)
	}
	e := &examiner{cfg: &cfg, decoder: d, detector: f}
	var ends []error
	for _, path := range cfg.Files {
		files, err := capture.Files(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			switch err := e.file(ctx, file); {
			case errors.Is(err, context.Canceled), errors.Is(err, errPlace):
				return nil, err
			case err != nil:
				ends = append(ends, err)
			}
		}
	}
	e.out.Decoded, e.out.Findings = d.Counters(), f.Findings()
	return &e.out, errors.Join(ends...)
}

// errPlace says that a tap stands nowhere.
var errPlace = errors.New("place tap")

// examiner is one run.
type examiner struct {
	cfg      *ExamineConfig
	decoder  *decode.Decoder
	detector *finding.Detector
	out      Examined
	result   decode.Result
	done     int64
}

func (e *examiner) file(ctx context.Context, path string) error {
	r, err := capture.Open(path, listOptions())
	if err != nil {
		return err
	}
	defer r.Close()
	defer func() { e.done += max(r.Offset(), 0) }()
	var batch capture.Batch
	var taps []finding.Tap // by interface
	named := source{path: path}
	for ctx.Err() == nil {
		if err := r.ReadBatch(&batch); errors.Is(err, io.EOF) {
			if damage := r.Damage(); damage != nil {
				return damage
			}
			return nil
		} else if err != nil {
			return err
		}
		interfaces := r.Interfaces()
		for n := len(taps); n < max(len(interfaces), 1); n++ {
			tap := finding.Tap{Name: named.tapName(interfaces, uint32(n)), File: path}
			if tap.Place, err = e.cfg.Place(tap.Name); err != nil {
				return fmt.Errorf("%w %q: %w", errPlace, tap.Name, err)
			}
			taps = append(taps, tap)
		}
		for i := range batch.N {
			e.frame(&batch.Frames[i], interfaces, taps)
		}
		if e.cfg.Progress != nil {
			e.cfg.Progress(e.done + max(r.Offset(), 0))
		}
	}
	return ctx.Err()
}

func (e *examiner) frame(f *capture.Frame, interfaces []capture.Interface, taps []finding.Tap) {
	e.out.Packets++
	link, known := feed.LinkOf(interfaces, f.Interface)
	if !known {
		e.out.Skipped.Add(interfaces[f.Interface].Link, 1)
		return
	}
	wireLen := feed.Decode(e.decoder, link, f, &e.result)
	tap := &taps[min(int(f.Interface), len(taps)-1)]
	for i := range e.result.N {
		o := &e.result.Obs[i]
		feed.Stamp(o, f, wireLen)
		if e.out.Observations++; e.out.Observations == 1 {
			e.out.From, e.out.To = o.TimeNS, o.TimeNS
		}
		e.out.From, e.out.To = min(e.out.From, o.TimeNS), max(e.out.To, o.TimeNS)
		e.detector.Observe(tap, o)
	}
}
