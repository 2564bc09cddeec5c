package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// verify asks the server for the acknowledged batches that are still on disk, and sends missing
// ones again: the server may have lost its disk, been restored from a backup, or lost power
// before its files were on disk. Gaps, taps and findings are few and are sent again without
// asking. Names are not, since later ones may have replaced them. Rows deleted by Trim, in any
// process, stay deleted, as do rows that may have expired. It reports whether all batches were verified.
func (d *delivery) verify(ctx context.Context) bool {
	for _, s := range d.log.Acked() {
		switch {
		case hasProbes(s.Class):
			if !d.verifySegment(ctx, s) {
				return false
			}
		case s.Class < flowsClass:
			if err := d.repeat(ctx, s); err != nil {
				return false
			}
		}
	}
	return true
}

// hasProbes reports whether the labels of a class have probes.
func hasProbes(class int) bool { return class < numResolutionTables || class == flowsClass }

// confirmStored sends the rows of the last sent batch once more, without its token, unless the
// server has them. A server that dies while it takes a batch may come back with the token and
// without the rows.
func (d *delivery) confirmStored(ctx context.Context, e *outbox.Entry, class int, probes []rowSample) error {
	if n := len(probes); n > 0 {
		probes = probes[:min(n, maxProbes)] // the server took all rows or none
		found, err := d.to.present(ctx, class, probes)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(probes, func(p rowSample) bool { return !found[p] }) {
			return nil
		}
	}
	d.logger.Warn("the server knows a batch but lost its rows: sending them again", slog.Uint64("rows", e.Weight))
	return d.to.sendBatch(ctx, &d.batch, "")
}

// tidy removes acknowledged segments that were kept long enough, after verifying once more that
// the server has them.
func (d *delivery) tidy(ctx context.Context) {
	d.tidied = time.Now()
	for _, s := range d.log.Acked() {
		if !s.Acked || d.now().Sub(s.AckedAt) < d.keep {
			continue
		}
		if d.keep > 0 && hasProbes(s.Class) && !d.verifySegment(ctx, s) {
			return
		}
		if err := d.log.Release(s); err != nil {
			d.logger.Error("sent rows cannot be removed from the outbox", slog.String("error", err.Error()))
			return
		}
	}
}

// trim removes acknowledged segments, oldest first, down to atMost bytes: a process that ends
// cannot remove them later.
func (d *delivery) trim(atMost int64) {
	list := d.log.Acked()
	total := int64(0)
	for _, s := range list {
		if s.Acked {
			total += s.Bytes
		}
	}
	for _, s := range list {
		if !s.Acked || total <= atMost {
			continue
		}
		if err := d.log.Release(s); err != nil {
			d.logger.Error("sent rows cannot be removed from the outbox", slog.String("error", err.Error()))
			return
		}
		total -= s.Bytes
	}
}

// verifySegment verifies one segment. If the server cannot answer, that is done later.
func (d *delivery) verifySegment(ctx context.Context, s outbox.Part) bool {
	missing, err := d.missing(ctx, s)
	if err == nil && len(missing) > 0 {
		d.logger.Warn("the server lost rows that it had taken: sending them again", slog.Int("batches", len(missing)))
		err = d.resend(ctx, s, missing)
	}
	if err != nil && ctx.Err() == nil {
		d.logger.Warn("cannot check whether the server still has sent rows", slog.String("error", oneLine(err)))
	}
	return err == nil
}

// missing returns the sequence numbers of the segment's batches that the server lacks.
func (d *delivery) missing(ctx context.Context, s outbox.Part) (map[uint64]bool, error) {
	missing := make(map[uint64]bool)
	var asked []probe
	for e, err := range d.log.Records(s) {
		if err != nil {
			return nil, err
		}
		list := parseLabel(e.Label).Probes
		if len(list) > maxProbes/4 {
			continue
		}
		if len(asked)+len(list) > maxProbes {
			if err := d.ask(ctx, s, asked, missing); err != nil {
				return nil, err
			}
			asked = asked[:0]
		}
		for _, p := range list {
			asked = append(asked, probe{p, e.First, e.At})
		}
	}
	return missing, d.ask(ctx, s, asked, missing)
}

// probe is a sample of an entry's rows.
type probe struct {
	rowSample
	first uint64 // of the entry
	at    time.Time
}

// ask asks the server for probes of a segment, and adds the entries of those that are missing there.
func (d *delivery) ask(ctx context.Context, s outbox.Part, probes []probe, missing map[uint64]bool) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	samples := make([]rowSample, len(probes))
	for i := range probes {
		samples[i] = probes[i].rowSample
	}
	found, err := d.to.present(ctx, s.Class, samples)
	if err != nil {
		return err
	}
	var gone []lossExtent
	var from []uint64
	keeps := time.Duration(0)
	for i := range probes {
		p := &probes[i]
		if found[p.rowSample] {
			continue
		}
		if keeps == 0 {
			if keeps, err = d.to.keeps(ctx, s.Class); err != nil {
				return err
			}
		}
		// Rows live from their insertion on, which may be long after the entry's time.
		if !s.Earlier || d.now().Sub(p.at) < keeps {
			// A probe does not have the window's length.
			gone = append(gone, lossExtent{Producer: p.Producer, Incarnation: p.Incarnation, Epoch: p.Epoch, From: p.Window, To: p.Window + 1})
			from = append(from, p.first)
		}
	}
	trimmed, err := d.to.trimmed(ctx, s.Class, gone)
	if err != nil {
		return err
	}
	for i, first := range from {
		if !trimmed[i] {
			missing[first] = true
		}
	}
	return nil
}

// resend sends batches of a segment once more, without their tokens: a server may remember a
// token whose rows it has lost.
func (d *delivery) resend(ctx context.Context, s outbox.Part, batches map[uint64]bool) error {
	for e, err := range d.log.Records(s) {
		if err != nil {
			return err
		}
		if !batches[e.First] {
			continue
		}
		payload, err := e.Read(nil)
		if err != nil {
			return err
		}
		var b batch
		if payload == nil || s.Class != flowsClass && d.sending.decode(payload, &b) != nil {
			d.report(outbox.Damaged, &e.Entry)
			d.log.Count(outbox.Damaged, outbox.Lost{Records: 1, Weight: e.Weight})
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		if s.Class == flowsClass {
			err = d.sendAgain(attempt, s.Class, payload)
		} else {
			err = d.to.sendBatch(attempt, &b, "")
		}
		cancel()
		if refused(err) || errors.Is(err, errNewerBatch) {
			continue // as at its first time; a newer csigscope has sent it
		}
		if err != nil {
			return err
		}
		d.note(func() {
			d.sent.Retries++
			d.resent++
		})
	}
	return nil
}

// repeat sends the records of a segment once more. They replace themselves.
func (d *delivery) repeat(ctx context.Context, s outbox.Part) error {
	for e, err := range d.log.Records(s) {
		if err != nil {
			return err
		}
		payload, err := e.Read(nil)
		if err != nil {
			return err
		}
		if payload == nil {
			continue // was sent once, and is useless now
		}
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err = d.sendAgain(attempt, s.Class, payload)
		cancel()
		if err != nil && !errors.Is(err, errNewerBatch) { // a newer csigscope has sent it
			return err
		}
	}
	return nil
}

// sendAgain sends a record that is not a batch, without its rows that Trim deleted.
func (d *delivery) sendAgain(ctx context.Context, class int, payload []byte) error {
	if class == gapsClass {
		send, err := d.recordSender(class, payload)
		if err != nil {
			return err
		}
		return send(ctx)
	}
	in, err := decodeRecords(class, payload)
	if err != nil {
		return err
	}
	trimmed, err := d.to.trimmed(ctx, class, in.parts())
	if err != nil {
		return err
	}
	if in = in.without(trimmed); in.rows == 0 {
		return nil
	}
	return d.to.sendRecords(ctx, in)
}

// recordSender decodes a record that is not a batch, and returns the function that sends it.
func (d *delivery) recordSender(class int, payload []byte) (send func(context.Context) error, err error) {
	switch class {
	case gapsClass:
		list, err := decodeGaps(payload)
		return func(ctx context.Context) error { return d.to.sendGaps(ctx, list) }, err
	case namesClass:
		names := new(nameRecord)
		err := decodeJSON(class, payload, names)
		return func(ctx context.Context) error { return names.send(ctx, d.to) }, err
	}
	in, err := decodeRecords(class, payload)
	return func(ctx context.Context) error { return d.to.sendRecords(ctx, in) }, err
}

// errHeld is the error of a record that waits for a newer csigscope.
var errHeld = errors.New("held for a newer csigscope")

// keepNewer moves a record that this version cannot read aside, so that later records can be
// sent. The record waits for a newer version, in at most d.newer bytes.
func (d *delivery) keepNewer(e *outbox.Entry) error {
	if e.Class == newerClass {
		d.log.Hold(newerClass)
		return errHeld
	}
	payload := append([]byte(className(e.Class)+"\n"), e.Payload...)
	err := d.log.Append(outbox.Record{Class: newerClass, Weight: e.Weight, Extent: e.Extent, Label: e.Label, Payload: payload})
	if errors.Is(err, outbox.ErrTooLarge) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNewerBatch, err)
	}
	d.log.Ack(e)
	d.log.Hold(newerClass)
	d.logger.Warn("the outbox has rows of a newer csigscope: keeping them for it",
		slog.String("class", className(e.Class)), slog.Uint64("rows", e.Weight))
	d.boundNewer()
	return errHeld
}

// unwrapNewer returns the class and the payload of a record that was moved aside; numClasses for
// a class unknown to this version.
func (d *delivery) unwrapNewer(payload []byte) (class int, rest []byte) {
	name, rest, _ := bytes.Cut(payload, []byte("\n"))
	for class := range numClasses {
		if class != newerClass && className(class) == string(name) {
			return class, rest
		}
	}
	return numClasses, nil
}

// boundNewer drops the oldest rows that wait for a newer version, down to a bound.
func (d *delivery) boundNewer() {
	for {
		s, bytes := d.log.Held()
		if bytes <= d.newer || !d.drop(s, lostNewer) {
			return
		}
	}
}
