package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/ingest/wire"
)

// withPrefixes returns a description of test blocks with further groups.
func withPrefixes(numbers ...int) Description {
	d := testDescription()
	for _, i := range numbers {
		name := fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)
		d.Groups = append(d.Groups, fabric.Group{ID: fabric.GroupIDOf(name), Name: name, Level: "prefix"})
	}
	return d
}

// upTo returns 0 to n-1.
func upTo(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// descriptionFiles lists the descriptions next to a spool.
func descriptionFiles(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, descriptionPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// spool writes a block of an epoch to the spool as a record of its own.
func (c *exporterUnderTest) spool(t testing.TB, n int, epoch uint64) {
	t.Helper()
	b := testBlock(newRand(t, uint64(n)), time.Now(), 10)
	b.Epoch = epoch
	if err := c.stream(t, "eth0").WriteBlock(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestNewNamesDuringOutage: while no collector runs, each window meets new names. Afterwards, all windows
// are stored, and all of their names are known: also those that the fabric has forgotten, or
// that only an earlier process met. One description says it all.
func TestNewNamesDuringOutage(t *testing.T) {
	const most = 3 * maxKept
	for name, tc := range map[string]struct {
		first int                    // names before the outage
		names func(window int) []int // in addition
		parts uint64                 // of the description
	}{
		"growing":         {0, upTo, 1},
		"growing, many":   {describeNames + 100, func(i int) []int { return upTo(describeNames + i) }, 2},
		"some forgotten":  {0, func(i int) []int { return []int{i} }, 1},
		"another process": {0, func(i int) []int { return upTo(i)[max(0, i-maxKept):] }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := clientConfig(t, "http://127.0.0.1:1")
			client.Logger = nil
			c := startClient(t, client)
			want := map[int]bool{}
			for _, i := range upTo(tc.first) {
				want[i] = true
			}
			for i := range most {
				if i == most/2 && name == "another process" {
					c.stop()
					c = startClient(t, client)
				}
				names := tc.names(i)
				for _, n := range names {
					want[n] = true
				}
				if err := c.Describe(withPrefixes(names...)); err != nil {
					t.Fatal(err)
				}
				d := testDescription()
				c.spool(t, i, d.Epoch())
			}
			if files := descriptionFiles(t, client.Dir); len(files) != 1 {
				t.Errorf("%d descriptions of one epoch", len(files))
			}
			c.stop()
			l, cfg := newLedger(), testConfig(t)
			cfg.Logger = nil
			client.Collectors = []string{startCollector(t, cfg, l, "").url}
			c = startClient(t, client)
			c.flush(t)
			if st := c.Stats(); st.Stored != most || len(st.Lost) > 0 || st.DescribeParts != tc.parts {
				t.Errorf("%+v, want %d stored by %d parts of descriptions", st, most, tc.parts)
			}
			if len(l.groups) != 1+len(want) {
				t.Errorf("%d groups, want %d", len(l.groups), 1+len(want))
			}
			// Once nothing waits, the names in use suffice.
			d := withPrefixes(1)
			if err := c.Describe(d); err != nil {
				t.Fatal(err)
			}
			if got, want := descriptionFiles(t, client.Dir), c.descriptionFile(d.toWire().GetId()); len(got) != 1 || got[0] != want {
				t.Errorf("descriptions %v, want %s", got, want)
			}
		})
	}
}

// TestManyEpochs: a request needs no more descriptions than any collector remembers.
func TestManyEpochs(t *testing.T) {
	client := clientConfig(t, "http://127.0.0.1:1")
	client.Logger = nil
	c := startClient(t, client)
	const epochs = 3*maxBatchDescriptions + 1
	for i := range epochs {
		d := Description{Text: fmt.Sprint("configuration ", i)}
		if err := c.Describe(d); err != nil {
			t.Fatal(err)
		}
		c.spool(t, i, d.Epoch())
	}
	c.stop()
	s := startCollector(t, testConfig(t), newLedger(), "")
	client.Collectors = []string{s.url}
	again := startClient(t, client)
	again.flush(t)
	if st := again.Stats(); st.Stored != epochs || st.DescribeParts != epochs || st.Pushes < 4+4+epochs {
		t.Errorf("%+v, want %d stored, in 4 requests at least, each sent twice, beside the descriptions", st, epochs)
	}
}

// TestKeptDescriptions: the spool keeps the descriptions of the latest epochs, by the order in which they
// came, whatever the clock says and whatever its folder is called.
func TestKeptDescriptions(t *testing.T) {
	client := clientConfig(t, "http://127.0.0.1:1")
	client.Dir = filepath.Join(client.Dir, "rack[1]")
	client.Logger = nil
	c, err := OpenClient(client)
	if err != nil {
		t.Fatal(err)
	}
	list := make([]Description, maxKept+2)
	for i := range list {
		list[i] = Description{Text: fmt.Sprint("configuration ", i)}
	}
	for i := range list[:maxKept] {
		if err := c.Describe(list[i]); err != nil {
			t.Fatal(err)
		}
		// The clock is set back later.
		if err := os.Chtimes(c.descriptionFile(list[i].toWire().GetId()), time.Time{}, time.Now().Add(time.Hour+time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err = OpenClient(client); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, i := range []int{0, maxKept, maxKept + 1} { // the first one is in use again
		if err := c.Describe(list[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range list {
		_, err := os.Stat(c.descriptionFile(list[i].toWire().GetId()))
		if _, unknown := c.descriptionOf(list[i].Epoch()); (err == nil) != (i != 1 && i != 2) || (unknown == nil) != (err == nil) {
			t.Errorf("description %d: %v, %v; want the oldest two gone", i, err, unknown)
		}
	}
	if epoch, _, err := c.latestEpoch(); err != nil || epoch != list[maxKept+1].Epoch() {
		t.Errorf("latest epoch %x, %v", epoch, err)
	}
}

// TestEarlierDescriptions: an earlier version has left several descriptions of an epoch. All of their names
// reach the collector, and one file is left.
func TestEarlierDescriptions(t *testing.T) {
	client := clientConfig(t, "http://127.0.0.1:1")
	client.Logger = nil
	c := startClient(t, client)
	d := testDescription()
	c.spool(t, 1, d.Epoch())
	c.stop()
	for _, i := range []int{1, 2, 3} {
		d := withPrefixes(i)
		if err := writeFile(c.descriptionFile(d.toWire().GetId()), encode(t, d.toWire())); err != nil {
			t.Fatal(err)
		}
	}
	l := newLedger()
	s := startCollector(t, testConfig(t), l, "")
	client.Collectors = []string{s.url}
	again := startClient(t, client)
	again.flush(t)
	if st, files := again.Stats(), descriptionFiles(t, client.Dir); st.Stored != 1 || len(l.groups) != 4 || len(files) != 1 {
		t.Errorf("%+v, %d groups, files %v, want one stored, 4 and one", st, len(l.groups), files)
	}
}

// TestDescriptionIsNotWritten: an exporter starts although the disk does not take the joined description of an
// epoch. It sends all names, and the next process has them too.
func TestDescriptionIsNotWritten(t *testing.T) {
	client := clientConfig(t, "http://127.0.0.1:1")
	client.Logger = nil
	c := startClient(t, client)
	d := testDescription()
	c.spool(t, 1, d.Epoch())
	c.stop()
	one, two := withPrefixes(1), withPrefixes(2)
	first, second := one.toWire(), two.toWire()
	joined := joinNames(second, first)
	for _, d := range []*wire.Description{first, second} {
		if err := writeFile(c.descriptionFile(d.GetId()), encode(t, d)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(c.descriptionFile(d.toWire().GetId())); err != nil {
		t.Fatal(err)
	}
	blocked := c.descriptionFile(joined.GetId())
	if err := os.Mkdir(blocked, 0o700); err != nil {
		t.Fatal(err)
	}
	for life := range 2 {
		c, err := OpenClient(client)
		if err != nil {
			t.Fatal(err)
		}
		if id, err := c.descriptionOf(d.Epoch()); err != nil || id != joined.GetId() || len(c.described(d.Epoch()).GetGroups()) != 3 {
			t.Errorf("life %d: description %x, %v, want %x with 3 groups", life, id, err, joined.GetId())
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if files := descriptionFiles(t, client.Dir); len(files) != 3 {
			t.Errorf("life %d: files %v, want both and the one in the way", life, files)
		}
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	client.Collectors = []string{startCollector(t, testConfig(t), l, "").url}
	again := startClient(t, client)
	again.flush(t)
	if files := descriptionFiles(t, client.Dir); len(l.groups) != 3 || len(files) != 1 || files[0] != blocked {
		t.Errorf("%d groups, files %v, want 3 and %s", len(l.groups), files, blocked)
	}
}

// TestUnfinishedDescription: the next process removes the file that a killed one was writing.
func TestUnfinishedDescription(t *testing.T) {
	client := clientConfig(t, "http://127.0.0.1:1")
	whole := testDescription()
	d := whole.toWire()
	half := filepath.Join(client.Dir, descriptionPrefix+"0123456789abcdef"+unfinished)
	if err := os.WriteFile(half, encode(t, d)[:10], 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := OpenClient(client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Describe(whole); err != nil {
		t.Fatal(err)
	}
	if files := descriptionFiles(t, client.Dir); len(files) != 1 || files[0] != c.descriptionFile(d.GetId()) {
		t.Errorf("files %v, want the description", files)
	}
}

// scripted is a transport without a network, whose collector answers by a function.
type scripted func(*wire.PushRequest) (*wire.PushResponse, error)

// RoundTrip implements http.RoundTripper.
func (s scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	connect.NewUnaryHandler(wire.IngestServicePushProcedure, func(_ context.Context, r *connect.Request[wire.PushRequest]) (*connect.Response[wire.PushResponse], error) {
		m, err := s(r.Msg)
		if err != nil {
			return nil, err
		}
		return connect.NewResponse(m), nil
	}).ServeHTTP(answer, r)
	return answer.Result(), nil
}

// startScripted runs a client with two collectors that answer by a function, in a synctest
// bubble, until it is stopped.
func startScripted(t *testing.T, answer func(c *Client, m *wire.PushRequest) (*wire.PushResponse, error)) (c *exporterUnderTest, log *logBuffer) {
	t.Helper()
	cfg, log := clientConfig(t, "http://127.0.0.1:1", "http://127.0.0.1:2"), &logBuffer{}
	cfg.noCompression, cfg.SpoolEvery, cfg.Logger = true, time.Hour, log.logger()
	client, err := OpenClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client.http.Transport = scripted(func(m *wire.PushRequest) (*wire.PushResponse, error) { return answer(client, m) })
	if err := client.Describe(testDescription()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx) }()
	return &exporterUnderTest{client, incarnations.Add(1), func() {
		cancel()
		if err := errors.Join(<-done, client.Close()); err != nil {
			t.Error(err)
		}
	}}, log
}

// outcomes answers for all items of a request. Undescribed ones are asked for.
func outcomes(m *wire.PushRequest, of func(description uint64) wire.Outcome) *wire.PushResponse {
	answer, ask := &wire.PushResponse{}, map[uint64]bool{}
	for _, b := range m.GetBlocks() {
		o := of(b.GetDescription())
		if answer.Outcomes = append(answer.Outcomes, o); o == wire.Outcome_OUTCOME_UNDESCRIBED {
			ask[b.GetDescription()] = true
		}
	}
	for id := range maps.Keys(ask) {
		answer.Describe = append(answer.Describe, id)
	}
	return answer
}

// TestDescriptionOutdatedMeanwhile: while a description is sent, there are new names each time. The windows
// get through with the description that the collector asked for.
func TestDescriptionOutdatedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, described := map[uint64]bool{}, 0
		c, _ := startScripted(t, func(c *Client, m *wire.PushRequest) (*wire.PushResponse, error) {
			for _, d := range m.GetDescriptions() {
				known[d.GetId()] = d.GetText() != ""
				described++
				if err := c.Describe(withPrefixes(upTo(described)...)); err != nil {
					t.Error(err)
				}
			}
			return outcomes(m, func(id uint64) wire.Outcome {
				if known[id] {
					return wire.Outcome_OUTCOME_STORED
				}
				return wire.Outcome_OUTCOME_UNDESCRIBED
			}), nil
		})
		defer c.stop()
		for i := range 2 {
			d := testDescription()
			c.spool(t, i, d.Epoch())
			c.flush(t)
		}
		if st := c.Stats(); st.Stored != 2 || st.Pushes > 1+6 || st.DescribeParts != 2 || len(st.Lost) > 0 {
			t.Errorf("%+v, want each window sent twice, and its description once, after an empty request", st)
		}
	})
}

// TestPauses: a client waits as long as a collector asks for, and longer each time if nothing changes.
func TestPauses(t *testing.T) {
	later := func(after time.Duration) error {
		err := connect.NewError(connect.CodeResourceExhausted, errors.New("too many names"))
		err.Meta().Set(retryAfter, strconv.FormatInt(after.Milliseconds(), 10))
		return err
	}
	always := func(o wire.Outcome) func(uint64) wire.Outcome { return func(uint64) wire.Outcome { return o } }
	for name, tc := range map[string]struct {
		describe    error // answer to descriptions
		outcome     wire.Outcome
		least, most uint64 // pushes in a minute
		patient     bool   // stays with its collector
	}{
		"names, later":      {later(5 * time.Second), wire.Outcome_OUTCOME_UNDESCRIBED, 24, 27, true},
		"names, much later": {later(365 * 24 * time.Hour), wire.Outcome_OUTCOME_UNDESCRIBED, 12, 15, true},
		"names, never":      {connect.NewError(connect.CodeInvalidArgument, errors.New("no")), wire.Outcome_OUTCOME_UNDESCRIBED, 24, 48, false},
		"asked for ever":    {nil, wire.Outcome_OUTCOME_UNDESCRIBED, 24, 60, false},
		"busy":              {nil, wire.Outcome_OUTCOME_UNSPECIFIED, 12, 24, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, log := startScripted(t, func(_ *Client, m *wire.PushRequest) (*wire.PushResponse, error) {
					if len(m.GetDescriptions()) > 0 && tc.describe != nil {
						return nil, tc.describe
					}
					return outcomes(m, always(tc.outcome)), nil
				})
				d := testDescription()
				c.spool(t, 1, d.Epoch())
				time.Sleep(time.Minute)
				synctest.Wait()
				if st := c.Stats(); st.Pushes < tc.least || st.Pushes > tc.most || st.Waiting != 1 {
					t.Errorf("%+v, want one waiting after %d to %d pushes", st, tc.least, tc.most)
				}
				if said := strings.Contains(log.String(), "cannot send windows"); said == tc.patient || c.Stats().Collector != "http://127.0.0.1:1" && tc.patient {
					t.Errorf("now at %s: %s", c.Stats().Collector, log)
				}
				c.stop()
			})
		})
	}
}

// TestRefusedMessages: a collector refuses each message with items. The exporter gives up its windows, tries
// to report their gaps once, pauses longer each time, and logs it once a minute.
func TestRefusedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, log := startScripted(t, func(_ *Client, m *wire.PushRequest) (*wire.PushResponse, error) {
			if len(m.GetBlocks())+len(m.GetRecords()) == 0 {
				return &wire.PushResponse{}, nil
			}
			return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("not of this protocol"))
		})
		defer c.stop()
		const windows = 5
		began, d := time.Now(), testDescription()
		for i := range windows {
			c.spool(t, i, d.Epoch())
		}
		c.flush(t)
		// Beside an empty request, each window and its gap are sent with others, and alone.
		if st := c.Stats(); st.Lost[lostRefused] != 2*windows || st.Pushes > 1+2*2*windows {
			t.Errorf("%+v; want %d windows and a gap of each given up after two pushes", st, windows)
		}
		took, said := time.Since(began), strings.Count(log.String(), "the collector refused them")
		if took < longestPause || took > quietFor || said != 1 {
			t.Errorf("given up within %v, logged %d times; want pauses and one line", took, said)
		}
	})
}

// TestOneGapOfRefusedWindows: a collector refuses many windows in one answer. One gap reports all of them,
// those before and after a stored one.
func TestOneGapOfRefusedWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const windows = 200
		var gaps []*wire.Gap
		var ready atomic.Bool
		c, _ := startScripted(t, func(_ *Client, m *wire.PushRequest) (*wire.PushResponse, error) {
			if !ready.Load() {
				return nil, connect.NewError(connect.CodeUnavailable, errors.New("not yet"))
			}
			answer := outcomes(m, func(uint64) wire.Outcome { return wire.Outcome_OUTCOME_INVALID })
			if len(answer.Outcomes) > 1 {
				answer.Outcomes[len(answer.Outcomes)/2] = wire.Outcome_OUTCOME_STORED
			}
			for _, r := range m.GetRecords() {
				gaps = append(gaps, r.GetGap())
				answer.Outcomes = append(answer.Outcomes, wire.Outcome_OUTCOME_STORED)
			}
			return answer, nil
		})
		defer c.stop()
		d := testDescription()
		for i := range windows {
			c.spool(t, i, d.Epoch())
		}
		ready.Store(true)
		c.flush(t)
		if st := c.Stats(); st.Stored != 2 || st.Refused[ReasonInvalid.String()] != windows-1 || st.Pushes-st.Failures != 2 {
			t.Errorf("%+v, want a window and a gap stored by two requests, %d windows refused", st, windows-1)
		}
		if len(gaps) != 1 || gaps[0].GetRows() != 10*(windows-1) {
			t.Errorf("gaps %v, want one of %d rows", gaps, 10*(windows-1))
		}
	})
}
