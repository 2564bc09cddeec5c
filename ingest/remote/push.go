package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/wire"
)

// service implements the handler of the protocol's library.
type service struct{ *Server }

// Push implements wire.IngestServiceHandler.
func (s service) Push(ctx context.Context, r *connect.Request[wire.PushRequest]) (*connect.Response[wire.PushResponse], error) {
	return answer(ctx, r, s.take)
}

// Share implements wire.IngestServiceHandler.
func (s service) Share(ctx context.Context, r *connect.Request[wire.ShareRequest]) (*connect.Response[wire.ShareResponse], error) {
	return answer(ctx, r, s.takeShared)
}

// answer passes the decoded request of an identified client to take.
func answer[Q, R any](ctx context.Context, r *connect.Request[Q], take func(context.Context, *call, *Q) (*R, error)) (*connect.Response[R], error) {
	c := callOf(ctx)
	if c == nil {
		return nil, unauthenticated(edge.ErrNone)
	}
	c.decoded = true
	m, err := take(ctx, c, r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}

// push is the processing of one request.
type push struct {
	*Server
	e       *exporter
	answer  *wire.PushResponse
	items   []*item
	begun   announcement
	written int  // items written to the sink
	left    bool // the client hung up, which counts once

	announced []Run // runs that began in this request
}

// take processes a request, and answers when its items are durable.
func (s *Server) take(ctx context.Context, c *call, m *wire.PushRequest) (*wire.PushResponse, error) {
	e := c.exporter
	if name := m.GetExporter(); name != "" && name != e.name {
		s.refuse(e, ReasonForged, slog.String("calls_itself", edge.Truncated(name)))
		return nil, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("the credential is of the exporter %q, and the request of another", e.name))
	}
	if err := s.spend(e, e.rows, rowsOf(m), ReasonRowRate); err != nil {
		return nil, err
	}
	for _, d := range m.GetDescriptions() {
		if err := s.describe(ctx, c, d); err != nil {
			return nil, err
		}
	}
	p := &push{Server: s, e: e, answer: &wire.PushResponse{}}
	p.takeProvisional(m.GetProvisional(), s.cfg.Provisional)
	observed, err := s.observe(ctx, m)
	if err != nil {
		return nil, err
	}
	defer observed()
	p.admit(m)
	err = p.write(ctx, c)
	c.release()
	// Decoded items may be large, and waiting for the disk takes long.
	m.Reset()
	for i := range p.items {
		p.items[i].drop()
	}
	observed()
	if err == nil {
		s.rest(c, p.waiting())
	}
	if p.written > 0 {
		if err != nil {
			p.refuseUnstored(ctx, ReasonSink, err)
		}
		err = s.commits.wait(ctx, struct{}{})
	}
	if err == nil {
		p.passRecords(ctx)
	}
	// The ends follow the records: their gaps arrive with the first records of the next
	// process.
	p.endEarlier(ctx)
	p.finish(err == nil)
	if err != nil {
		p.refuseUnstored(ctx, ReasonSink, err)
		return nil, errUnavailable()
	}
	return p.answer, nil
}

func rowsOf(m *wire.PushRequest) (n int) {
	for _, b := range m.GetBlocks() {
		n += len(b.GetSignal()) + len(b.GetFlows().GetKind())
	}
	for _, o := range m.GetObservations() {
		n += len(o.GetKind())
	}
	for _, r := range m.GetRecords() {
		n += 1 + len(r.GetFindings())
	}
	return n
}

// refuseUnstored counts and logs why the store did not accept something: for the reason r, unless the
// client hung up while it waited.
func (p *push) refuseUnstored(ctx context.Context, r Reason, err error) {
	if errors.Is(ctx.Err(), context.Canceled) && errors.Is(err, context.Canceled) {
		if p.left {
			return
		}
		p.left, r = true, ReasonLeft
	}
	p.refuse(p.e, r, slog.String("error", err.Error()))
}

// unavailable refuses a request before anything else of it was tried, as refuseUnstored does, and returns
// the error for the client.
func (s *Server) unavailable(ctx context.Context, e *exporter, err error) error {
	(&push{Server: s, e: e}).refuseUnstored(ctx, ReasonSink, err)
	return errUnavailable()
}

// errUnavailable returns the error for a store that accepts nothing now; the exporter retries.
func errUnavailable() error {
	return connect.NewError(connect.CodeUnavailable, errors.New("the collector cannot store windows at the moment: its log says why"))
}

// describe processes a part of a description.
func (s *Server) describe(ctx context.Context, c *call, d *wire.Description) error {
	e := c.exporter
	if err := checkDescription(d); err != nil {
		s.refuse(e, ReasonDescription, slog.String("error", edge.Truncated(err.Error())))
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	a, refused := s.names.news(d, e.name)
	n := len(a.names)
	if a.text != "" {
		n += min(textNames, maxMessageNames-n)
	}
	if n > 0 {
		if err := s.spend(e, e.naming, n, ReasonNames); err != nil {
			return err
		}
	}
	if a.text != "" || len(a.names) > 0 {
		c.release() // let others decode while the directory is slow
		if err := s.announces.wait(ctx, a); err != nil {
			return s.unavailable(ctx, e, err)
		}
		s.names.wrote(d)
	}
	s.dispute(e, refused)
	if d.GetText() != "" {
		e.describe(described{d.GetId(), d.GetEpoch()})
		s.names.share(d)
	}
	return nil
}

// admit determines the outcome of every item, and takes the numbers of those to be written.
func (p *push) admit(m *wire.PushRequest) {
	f, _ := p.uniqueRows.Get().(*uniqueRows)
	defer p.uniqueRows.Put(f)
	for _, b := range m.GetBlocks() {
		it := blockItem(b)
		p.add(it, p.checkBlock(it, b, f))
	}
	for _, o := range m.GetObservations() {
		it := &item{
			stream: o.GetStream(), at: blockID{incarnation: o.GetIncarnation(), seq: o.GetSeq()}, batch: true, observed: uint64(len(o.GetKind())),
		}
		p.add(it, p.checkBatch(it, o))
	}
	for _, r := range m.GetRecords() {
		it := &item{stream: r.GetStream(), epoch: r.GetEpoch(), at: blockID{incarnation: r.GetIncarnation()}, record: r}
		p.add(it, p.checkRecord(it, r))
	}
}

// write passes new items to the sink, those of known runs first: a run that begins waits for
// the directory. It skips the items after one that fails.
func (p *push) write(ctx context.Context, c *call) error {
	var known, begin []*item
	for _, it := range p.items {
		switch {
		case it.outcome != wire.Outcome_OUTCOME_STORED:
		case slices.Contains(p.begun.runs, p.run(it)):
			begin = append(begin, it)
		default:
			known = append(known, it)
		}
	}
	if err := p.writeItems(ctx, known); err != nil {
		sendAgain(begin)
		return err
	}
	if len(begin) == 0 {
		return nil
	}
	c.release()
	patient, cancel := p.patience(ctx)
	err := p.announces.wait(patient, p.begun)
	cancel()
	if err != nil {
		sendAgain(begin)
		return err
	}
	for _, it := range begin {
		p.e.announced(it.at, it.epoch)
	}
	p.announced = p.begun.runs
	return p.writeItems(ctx, begin)
}

// waiting returns the bytes that the items hold when their rows are in the sink.
func (p *push) waiting() (n int64) {
	for _, it := range p.items {
		n += itemBytes + keptBytes*int64(len(it.kept))
		if it.record != nil {
			n += int64(proto.Size(it.record))
		}
	}
	return n
}

// sendAgain makes the exporter send items again.
func sendAgain(list []*item) {
	for _, it := range list {
		it.outcome = wire.Outcome_OUTCOME_UNSPECIFIED
	}
}

func (p *push) writeItems(ctx context.Context, list []*item) error {
	for i, it := range list {
		if err := p.writeItem(ctx, it); err != nil {
			sendAgain(list[i:])
			return err
		}
		if it.record == nil {
			p.written++
		}
	}
	return nil
}

// writeItem passes the rows of an item to the sink. A client that leaves does not divide a batch.
func (p *push) writeItem(ctx context.Context, it *item) error {
	var to aggregate.Sink = p.sink
	if it.batch {
		to = p.cfg.Batches
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.Timeout)
		defer cancel()
		ctx = whole
	}
	for len(it.blocks) > 0 {
		if err := to.WriteBlock(ctx, it.blocks[0]); err != nil {
			return err
		}
		it.wrote = true
		it.blocks[0], it.blocks = nil, it.blocks[1:]
	}
	return nil
}

// finish counts the items and completes the answer.
func (p *push) finish(durable bool) {
	for _, it := range p.items {
		if it.outcome == wire.Outcome_OUTCOME_STORED && !durable {
			it.outcome = wire.Outcome_OUTCOME_UNSPECIFIED
		}
		if it.began {
			p.e.finish(it, it.outcome == wire.Outcome_OUTCOME_STORED)
		}
		p.e.counts.add(func(c *Counts) { c.count(it) })
		if it.outcome == wire.Outcome_OUTCOME_STORED {
			if it.record.GetEnd() != nil {
				p.e.end(it.at, it.epoch)
			}
			p.refuseFindings(it, ReasonFuture, it.futureFindings)
			p.refuseFindings(it, ReasonPast, it.pastFindings)
		} else {
			for _, counted := range it.kept {
				p.kept.release(counted.windowKey, it.at.incarnation, counted.rows)
			}
		}
		p.answer.Outcomes = append(p.answer.Outcomes, it.outcome)
	}
}
