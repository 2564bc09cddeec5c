package remote

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/ingest/wire"
)

const (
	// maxKept is the maximum number of epochs whose descriptions are kept next to the spool.
	maxKept = 64
	// maxBatchDescriptions is the maximum number of descriptions that a request of several records
	// needs: a collector remembers at least minDescribed of an exporter.
	maxBatchDescriptions = 8
	// describeBytes and describeNames limit a part of a description.
	describeBytes = 512 << 10
	describeNames = 4096

	descriptionPrefix = "description-"
)

// keptDescription is the only description of its epoch next to the spool. It has all names of
// the epoch's waiting items.
type keptDescription struct {
	epoch, id uint64
	m         *wire.Description // nil: only in its file so far
}

// Describe sets the meaning of the numbers in blocks of d's epoch from now on. Call it again
// for an epoch when there are more names, but only every few seconds, since the whole
// description is sent. Names of an earlier description of the epoch, also by an earlier process,
// are kept as long as items wait that may need them.
func (c *Client) Describe(d Description) error {
	if d.Text == "" || len(d.Text) > maxTextBytes {
		return fmt.Errorf("describe epoch: text of %d bytes: expected 1 to %d", len(d.Text), maxTextBytes)
	}
	m := d.toWire()
	if err := checkDescription(m); err != nil {
		return fmt.Errorf("describe epoch: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.pending.items() > 0 || c.log.Stats().Waiting.Records > 0
	if have := c.described(m.GetEpoch()); have != nil && waiting {
		m = joinNames(m, have)
	}
	if err := c.keep(m); err != nil {
		return fmt.Errorf("describe epoch: %w", err)
	}
	return nil
}

// joinNames returns m together with the names of an earlier description of its epoch that m lacks:
// a fabric forgets idle prefixes, and one of a new process has not met them yet. Names beyond
// the limit of a collector's cache are left out.
func joinNames(m, earlier *wire.Description) *wire.Description {
	known := make(map[nameKey]bool, len(m.GetGroups())+len(m.GetLocations()))
	for _, g := range m.GetGroups() {
		known[nameKey{false, g.GetId()}] = true
	}
	for _, l := range m.GetLocations() {
		known[nameKey{true, l.GetId()}] = true
	}
	own := len(known)
	lacks := func(k nameKey) bool {
		if known[k] || len(known) >= maxExporterNames {
			return false
		}
		known[k] = true
		return true
	}
	joined := &wire.Description{Epoch: m.GetEpoch(), Text: m.GetText(), Groups: slices.Clone(m.GetGroups()), Locations: slices.Clone(m.GetLocations())}
	for _, g := range earlier.GetGroups() {
		if lacks(nameKey{false, g.GetId()}) {
			joined.Groups = append(joined.Groups, g)
		}
	}
	for _, l := range earlier.GetLocations() {
		if lacks(nameKey{true, l.GetId()}) {
			joined.Locations = append(joined.Locations, l)
		}
	}
	if len(known) == own {
		return m
	}
	// Equal names have an equal id, whichever came first.
	slices.SortFunc(joined.Groups, func(a, b *wire.Group) int { return cmp.Compare(a.GetId(), b.GetId()) })
	slices.SortFunc(joined.Locations, func(a, b *wire.Location) int { return cmp.Compare(a.GetId(), b.GetId()) })
	joined.Id = descriptionID(joined)
	return joined
}

// keep makes m the description of its epoch, and the latest one. The caller holds mu.
func (c *Client) keep(m *wire.Description) error {
	i := c.keptIndex(m.GetEpoch())
	if i < 0 || c.kept[i].id != m.GetId() {
		text, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		if err := writeFile(c.descriptionFile(m.GetId()), text); err != nil {
			return err
		}
	}
	if i >= 0 {
		if c.kept[i].id != m.GetId() {
			c.removeDescription(c.descriptionFile(c.kept[i].id))
		}
		c.kept = slices.Delete(c.kept, i, i+1)
	}
	c.kept = append(c.kept, keptDescription{m.GetEpoch(), m.GetId(), m})
	for len(c.kept) > maxKept {
		c.removeDescription(c.descriptionFile(c.kept[0].id))
		c.kept = slices.Delete(c.kept, 0, 1)
	}
	return nil
}

func (c *Client) removeDescription(name string) {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.cfg.Logger.Warn("cannot remove an old description from the spool", slog.String("error", err.Error()))
	}
}

func (c *Client) descriptionFile(id uint64) string {
	return filepath.Join(c.cfg.Dir, fmt.Sprintf("%s%016x", descriptionPrefix, id))
}

// openDescriptions finds the descriptions of earlier processes. Earlier versions kept several of
// an epoch, and a crash leaves two: they become one. If the disk does not take that one, it stays in
// memory, and the next process joins the files again.
func (c *Client) openDescriptions() error {
	names, err := fs.Glob(os.DirFS(c.cfg.Dir), descriptionPrefix+"*")
	if err != nil {
		return err
	}
	for i := range names {
		names[i] = filepath.Join(c.cfg.Dir, names[i])
	}
	written := func(name string) time.Time {
		info, err := os.Stat(name)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortStableFunc(names, func(a, b string) int { return written(a).Compare(written(b)) })
	for _, name := range names {
		if strings.HasSuffix(name, unfinished) {
			c.removeDescription(name)
			continue
		}
		d := readDescription(name)
		if d == nil || name != c.descriptionFile(d.GetId()) {
			continue // damaged
		}
		have := c.described(d.GetEpoch())
		if have == nil {
			c.kept = append(c.kept, keptDescription{epoch: d.GetEpoch(), id: d.GetId()})
			continue
		}
		joined := joinNames(d, have)
		if err := c.keep(joined); err != nil {
			c.cfg.Logger.Error("cannot write a description to the spool, it stays in memory", slog.String("error", err.Error()))
			i := c.keptIndex(joined.GetEpoch())
			c.kept = append(slices.Delete(c.kept, i, i+1), keptDescription{joined.GetEpoch(), joined.GetId(), joined})
			continue
		}
		if joined.GetId() != d.GetId() {
			c.removeDescription(name)
		}
	}
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

func (c *Client) keptIndex(epoch uint64) int {
	return slices.IndexFunc(c.kept, func(k keptDescription) bool { return k.epoch == epoch })
}

// described returns the description of an epoch, nil if there is none. The caller holds mu.
func (c *Client) described(epoch uint64) *wire.Description {
	i := c.keptIndex(epoch)
	if i < 0 {
		return nil
	}
	k := &c.kept[i]
	if k.m == nil {
		if k.m = readDescription(c.descriptionFile(k.id)); k.m == nil {
			c.kept = slices.Delete(c.kept, i, i+1)
			return nil
		}
	}
	return k.m
}

// descriptionOf returns the id of the description of an epoch, from this or an earlier process.
// The caller holds mu.
func (c *Client) descriptionOf(epoch uint64) (uint64, error) {
	if i := c.keptIndex(epoch); i >= 0 {
		return c.kept[i].id, nil
	}
	return 0, errUndescribed
}

// latestEpoch returns the current configuration. The caller holds mu.
func (c *Client) latestEpoch() (epoch, description uint64, err error) {
	if len(c.kept) == 0 {
		return 0, 0, errUndescribed
	}
	k := &c.kept[len(c.kept)-1]
	return k.epoch, k.id, nil
}

// describeItems makes the items of an encoded record refer to the present descriptions of their
// epochs, which have all of their names, and adds those to the batch. An item whose epoch has
// none keeps its own.
func (c *Client) describeItems(batch *pushBatch, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// An error ends the walk: a collector refuses such a record.
	_ = eachField(body, func(n protowire.Number, item []byte) error {
		var epoch uint64
		var description []byte
		switch n {
		case fieldBlocks:
			epoch, description = descriptionIn(item, fieldBlockEpoch)
		case fieldRecords:
			epoch, description = descriptionIn(item, fieldRecordEpoch)
		}
		if description == nil {
			return nil
		}
		i := slices.IndexFunc(batch.described, func(d *wire.Description) bool { return d.GetEpoch() == epoch })
		if i < 0 {
			d := c.described(epoch)
			if d == nil {
				return nil
			}
			i, batch.described = len(batch.described), append(batch.described, d)
		}
		binary.LittleEndian.PutUint64(description, batch.described[i].GetId())
		return nil
	})
}

// The field numbers of epochs, which the descriptions follow.
const fieldBlockEpoch, fieldRecordEpoch = 4, 3

// descriptionIn returns the epoch of an encoded item, and the bytes of its description's id, nil
// without one.
func descriptionIn(item []byte, epochField protowire.Number) (epoch uint64, description []byte) {
	for len(item) > 0 {
		n, typ, size := protowire.ConsumeTag(item)
		if size < 0 {
			return 0, nil
		}
		item = item[size:]
		if size = protowire.ConsumeFieldValue(n, typ, item); size < 0 {
			return 0, nil
		}
		switch {
		case typ != protowire.Fixed64Type:
		case n == epochField:
			epoch = binary.LittleEndian.Uint64(item)
		case n == epochField+1:
			return epoch, item[:size]
		}
		item = item[size:]
	}
	return 0, nil
}

// describeAll sends the descriptions of a batch that a collector asked for, and returns how many
// of them exist.
func (c *Client) describeAll(ctx context.Context, batch *pushBatch, ids []uint64) (described int, err error) {
	for _, id := range ids {
		i := slices.IndexFunc(batch.described, func(d *wire.Description) bool { return d.GetId() == id })
		if i < 0 {
			c.undescribed.Log(c.cfg.Logger, slog.LevelError, c.cfg.Now(), "windows lost: the spool has no readable description of their names", slog.Uint64("id", id))
			continue
		}
		described++
		for _, part := range split(batch.described[i]) {
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

// unfinished is the suffix of a file that writeFile has not renamed yet.
const unfinished = ".new"

// writeFile replaces a file durably and atomically. A crash may leave an unfinished one.
func writeFile(name string, data []byte) error {
	temp := name + unfinished
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		_ = os.Remove(temp)
		return err
	}
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
