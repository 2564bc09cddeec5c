package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/csigscope/csigscope/capture"
)

// follow lists a capture that grows, and those that its program goes on with. What
// cannot be read is told at once and counted, for the end may be long in coming.
func (l *Lister) follow(ctx context.Context, path string) (err error) {
	rotation, err := capture.FollowRotation(ctx, path, capture.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rotation.Close()) }()
	named := isFolder(path)
	for {
		r, err := rotation.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			l.missed(err)
			continue
		}
		l.cfg.Logger.Debug("following", slog.String("file", r.Name()))
		cut, err := l.read(ctx, r, newListing(r.Name(), named), true)
		if err != nil {
			return err
		}
		if cut != nil {
			l.missed(cut)
		}
	}
	if l.counts.Missed > 0 {
		return fmt.Errorf("follow %q: %d captures were not read in full", path, l.counts.Missed)
	}
	return ctx.Err()
}

func (l *Lister) missed(err error) {
	l.counts.Missed++
	l.cfg.Logger.Warn("capture is not read in full", slog.Any("error", err))
}
