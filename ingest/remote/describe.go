package remote

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/ingest/wire"
)

const (
	// maxKept is the maximum number of descriptions kept next to the spool.
	maxKept = 64
	// describeBytes and describeNames limit a part of a description.
	describeBytes = 512 << 10
	describeNames = 4096

	descriptionPrefix = "description-"
)

// Describe sets the meaning of the numbers in blocks of d's epoch from now on. Call it again
// for an epoch when there are more names, but only every few seconds, since the whole
// description is sent. Descriptions are kept next to the spool as long as blocks may need them.
func (c *Client) Describe(d Description) error {
	if d.Text == "" || len(d.Text) > maxTextBytes {
		return fmt.Errorf("describe epoch: text of %d bytes: expected 1 to %d", len(d.Text), maxTextBytes)
	}
	m := d.toWire()
	if err := checkDescription(m); err != nil {
		return fmt.Errorf("describe epoch: %w", err)
	}
	text, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("describe epoch: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.latest[m.GetEpoch()]; have != nil && have.GetId() == m.GetId() {
		return nil
	}
	if err := writeFile(c.descriptionFile(m.GetId()), text); err != nil {
		return fmt.Errorf("describe epoch: %w", err)
	}
	c.latest[m.GetEpoch()] = m
	c.forgetDescriptions()
	return nil
}

func (c *Client) descriptionFile(id uint64) string {
	return filepath.Join(c.cfg.Dir, fmt.Sprintf("%s%016x", descriptionPrefix, id))
}

// descriptionFiles returns the kept files, latest last.
func (c *Client) descriptionFiles() []string {
	names, err := filepath.Glob(filepath.Join(c.cfg.Dir, descriptionPrefix+"*"))
	if err != nil {
		return nil // the pattern is valid
	}
	written := func(name string) time.Time {
		info, err := os.Stat(name)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(names, func(a, b string) int { return written(a).Compare(written(b)) })
	return names
}

// forgetDescriptions removes the oldest files beyond the limit.
func (c *Client) forgetDescriptions() {
	names := c.descriptionFiles()
	for _, n := range names[:max(len(names)-maxKept, 0)] {
		if err := os.Remove(n); err != nil {
			c.cfg.Logger.Warn("cannot remove an old description from the spool", slog.String("error", err.Error()))
		}
	}
}

// description returns the description with an id, nil if it is lost.
func (c *Client) description(id uint64) *wire.Description {
	c.mu.Lock()
	for _, d := range c.latest {
		if d.GetId() == id {
			c.mu.Unlock()
			return d
		}
	}
	c.mu.Unlock()
	if d := readDescription(c.descriptionFile(id)); d != nil && d.GetId() == id {
		return d
	}
	c.cfg.Logger.Error("windows lost: the spool has no readable description of their names", slog.Uint64("id", id))
	return nil
}

// readDescription returns nil if the file contains no valid description.
func readDescription(name string) *wire.Description {
	text, err := os.ReadFile(name)
	d := &wire.Description{}
	if err != nil || proto.Unmarshal(text, d) != nil || checkDescription(d) != nil {
		return nil
	}
	return d
}

// descriptionOf returns the id of the latest description of an epoch, from this or an earlier
// process. The caller holds mu.
func (c *Client) descriptionOf(epoch uint64) (uint64, error) {
	if d := c.latest[epoch]; d != nil {
		return d.GetId(), nil
	}
	for _, name := range slices.Backward(c.descriptionFiles()) {
		if d := readDescription(name); d != nil && d.GetEpoch() == epoch {
			c.latest[epoch] = d
			return d.GetId(), nil
		}
	}
	return 0, errUndescribed
}

// describeAll sends the descriptions that a collector asked for, and returns how many of them
// exist.
func (c *Client) describeAll(ctx context.Context, ids []uint64) (described int, err error) {
	for _, id := range ids {
		d := c.description(id)
		if d == nil {
			continue
		}
		described++
		for _, part := range split(d) {
			body, err := proto.Marshal(&wire.PushRequest{Exporter: c.cfg.Exporter, Descriptions: []*wire.Description{part}})
			if err != nil {
				return described, fmt.Errorf("describe epoch: %w", err)
			}
			if _, err := c.push(ctx, body); err != nil {
				return described, err
			}
			c.mu.Lock()
			c.stats.DescribeParts++
			c.mu.Unlock()
		}
	}
	return described, nil
}

// split cuts a description into parts that fit into messages. Only the last part has the text.
func split(d *wire.Description) []*wire.Description {
	var parts []*wire.Description
	part := &wire.Description{Id: d.GetId(), Epoch: d.GetEpoch()}
	size := len(d.GetText())
	next := func(m proto.Message) {
		n := proto.Size(m)
		if size+n > describeBytes && len(part.Groups)+len(part.Locations) > 0 || len(part.Groups)+len(part.Locations) >= describeNames {
			parts = append(parts, part)
			part, size = &wire.Description{Id: d.GetId(), Epoch: d.GetEpoch()}, len(d.GetText())
		}
		size += n
	}
	for _, g := range d.GetGroups() {
		next(g)
		part.Groups = append(part.Groups, g)
	}
	for _, l := range d.GetLocations() {
		next(l)
		part.Locations = append(part.Locations, l)
	}
	part.Text = d.GetText()
	return append(parts, part)
}
