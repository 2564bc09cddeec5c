// Command example maintains the weights of the paths between two groups over the query API, like
// a traffic controller. It prints each change as a line of JSON, where a real controller would
// configure switches.
//
// It acts on windows as they end, and never on silence: without fresh rows of all taps the
// weights stay.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/csigscope/csigscope/aggregate/query/wire"
)

const (
	room      = "min_abw_ratio" // the signal behind the weights
	mostAge   = 3 * time.Second // of the newest observations: older answers are outdated
	full      = 10              // weight of a path that is not limited
	calm      = 5               // windows without congestion before a path gets its weight back
	dark      = 3               // windows without packets on a path, while others have some, before it counts as failed
	reconnect = time.Second
)

// change is one decision.
type change struct {
	Time    time.Time      `json:"time"`
	Window  time.Time      `json:"window_end"`
	Path    string         `json:"path"`
	Weight  int            `json:"weight"`
	Why     string         `json:"why"`
	Weights map[string]int `json:"weights"` // of all paths, afterwards
}

// path is one possible path of the pair's packets.
type path struct {
	links  []string
	weight int
	calm   int // windows in a row without a reason for a low weight
	dark   int // windows in a row without packets on it
}

// controller maintains the weights of one pair of groups. It is used by one goroutine.
type controller struct {
	calls    wire.QueryServiceClient
	src, dst string
	paths    []*path
	last     time.Time // end of the newest window that was evaluated
	held     bool      // weights stay, because the last answer was stale
	out      *json.Encoder
	log      *slog.Logger
}

func main() {
	server := flag.String("server", "http://127.0.0.1:9465", "`URL` of csigscope collect --api-listen")
	src, dst := flag.String("src", "rack1", "source `GROUP`"), flag.String("dst", "rack2", "destination `GROUP`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	c := &controller{
		calls: wire.NewQueryServiceClient(http.DefaultClient, *server), src: *src, dst: *dst,
		out: json.NewEncoder(os.Stdout), log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	err := c.run(ctx)
	stopped := ctx.Err() != nil
	stop()
	if !stopped {
		c.log.Error("keep weights", slog.Any("error", err))
		os.Exit(1)
	}
}

// run follows the windows until the context ends, and reopens a stream that ended. It fails if the
// server does not name two paths or more.
func (c *controller) run(ctx context.Context) error {
	if err := c.findPaths(ctx); err != nil {
		return fmt.Errorf("ask for the paths of %s to %s: %w", c.src, c.dst, err)
	}
	if len(c.paths) < 2 {
		return errors.New("there are no two paths to choose from: does the server have a fabric file?")
	}
	for {
		if err := c.follow(ctx); err != nil {
			c.log.Warn("watch", slog.Any("error", err))
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// findPaths asks for the paths of the pair. It waits for a server that is not up yet.
func (c *controller) findPaths(ctx context.Context) error {
	for waiting := false; ; waiting = true {
		found, err := c.calls.Topology(ctx, connect.NewRequest(&wire.TopologyRequest{Src: c.src, Dst: c.dst}))
		switch {
		case err == nil:
			for _, p := range found.Msg.GetPaths() {
				c.paths = append(c.paths, &path{links: p.GetLinks(), weight: full})
			}
			return nil
		case connect.CodeOf(err) != connect.CodeUnavailable:
			return err
		case !waiting:
			c.log.Warn("wait for the server: start csigscope collect, or name its address with -server", slog.Any("error", err))
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// pause waits before the next attempt, or returns the error of the context.
func pause(ctx context.Context) error {
	select {
	case <-time.After(reconnect):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// follow checks the links as each window ends. Heartbeats make it check during silence.
func (c *controller) follow(ctx context.Context) error {
	stream, err := c.calls.Watch(ctx, connect.NewRequest(&wire.WatchRequest{
		Signal: room, Src: []string{c.src}, Dst: []string{c.dst}, Heartbeat: durationpb.New(time.Second),
	}))
	if err != nil {
		return fmt.Errorf("open stream: %w", err)
	}
	defer stream.Close()
	for stream.Receive() {
		if err := c.look(ctx); err != nil {
			return err
		}
	}
	return stream.Err()
}

// look reads the links in the newest window, and adjusts the weights of the paths.
func (c *controller) look(ctx context.Context) error {
	windows := uint32(1)
	answer, err := c.calls.Links(ctx, connect.NewRequest(&wire.LinksRequest{Signal: room, Windows: &windows, Link: c.links()}))
	if err != nil {
		return fmt.Errorf("ask for links: %w", err)
	}
	about, end := answer.Msg.GetAbout(), answer.Msg.GetAbout().GetTo().AsTime()
	if about.GetTo() == nil {
		return nil // no window has ended yet
	}
	age, complete := time.Duration(about.GetAgeS()*float64(time.Second)), about.GetCompletenessRatio()
	if hold := age > mostAge || complete < 1; hold != c.held {
		c.held = hold
		c.log.Info("freshness of links changed", slog.Bool("stale", hold), slog.Duration("age", age.Round(time.Millisecond)), slog.Float64("completeness", complete))
	}
	if c.held {
		return nil
	}
	if !end.After(c.last) {
		return nil // the same window, with more rows
	}
	c.last = end
	byName := make(map[string]*wire.Link)
	for _, l := range answer.Msg.GetLinks() {
		byName[l.GetLink()] = l
	}
	c.weigh(end, byName)
	return nil
}

// links returns the names of all paths' links.
func (c *controller) links() []string {
	names := make(map[string]bool)
	for _, p := range c.paths {
		for _, l := range p.links {
			names[l] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// weigh lowers the weight of a path at once, and raises it after some calm windows, so that one
// event changes it only twice. If nothing is known of any path, all keep their weights.
func (c *controller) weigh(end time.Time, links map[string]*wire.Link) {
	known := 0
	for _, p := range c.paths {
		if _, _, ok := p.wanted(links); ok {
			known++
		}
	}
	for _, p := range c.paths {
		want, why, ok := p.wanted(links)
		if p.dark++; ok {
			p.dark = 0
		}
		switch {
		case ok && want == full:
			if p.calm++; p.weight < full && p.calm >= calm {
				c.set(end, p, full, fmt.Sprintf("calm for %d windows", calm))
			}
			continue
		case ok && p.weight == full:
			c.set(end, p, want, why)
		case !ok && known > 0 && p.dark >= dark && p.weight == full:
			c.set(end, p, 1, fmt.Sprintf("nothing passes it for %d windows", dark))
		}
		p.calm = 0
	}
}

// wanted is the weight that the tightest link of a path gives it. ok is false if one of its links
// is unknown.
func (p *path) wanted(links map[string]*wire.Link) (weight int, why string, ok bool) {
	weight = full
	for _, name := range p.links {
		switch l := links[name]; l.GetState() {
		case wire.State_STATE_CLEAR, wire.State_STATE_BRIEF:
		case wire.State_STATE_CONGESTED:
			if w := max(1, int(full*l.GetMean().GetRatio())); w < weight {
				weight, why = w, fmt.Sprintf("%s has %.0f %% of its capacity left", name, 100*l.GetMean().GetRatio())
			}
		default:
			return 0, "", false
		}
	}
	return weight, why, true
}

func (c *controller) set(end time.Time, p *path, weight int, why string) {
	p.weight = weight
	now := change{Time: time.Now().UTC(), Window: end, Path: fmt.Sprint(p.links), Weight: weight, Why: why, Weights: make(map[string]int)}
	for _, o := range c.paths {
		now.Weights[fmt.Sprint(o.links)] = o.weight
	}
	if err := c.out.Encode(now); err != nil {
		c.log.Error("write change", slog.Any("error", err))
	}
}
