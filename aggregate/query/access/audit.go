package access

import (
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// sayEvery is how often a refusal for one reason is logged, at most.
const sayEvery = 10 * time.Second

// maxLogged bounds what a request can write into a line of the log, of each field.
const maxLogged = 256

// audit writes a line for each request of who is not this machine, or has shown a credential,
// but for what holds no data: strangers could fill the log with it. Refused ones are sampled:
// a line for each reason now and then, with how many there were.
type audit struct {
	logger *slog.Logger

	mu   sync.Mutex
	said [numReasons]time.Time
	kept [numReasons]uint64
}

func (a *audit) write(q *request, status int, r *http.Request, took time.Duration, now time.Time) {
	refused := q.why().refusal()
	if !refused && (q.open || q.peer.How == "" && q.from == loopback) || q.why() == preflight {
		return
	}
	line := []slog.Attr{
		slog.String("who", q.peer.Name), slog.String("role", string(q.peer.Role)), slog.String("by", q.peer.How), slog.String("peer", r.RemoteAddr),
		slog.String("method", limited(r.Method)), slog.String("path", limited(r.URL.Path)), slog.Int("status", status),
		slog.Float64("ms", float64(took)/float64(time.Millisecond)),
	}
	if refused {
		unsaid, say := a.sample(q.why(), now)
		if !say {
			return
		}
		line = append(line, slog.String("reason", q.why().String()))
		if unsaid > 0 {
			line = append(line, slog.Uint64("unsaid", unsaid))
		}
		a.logger.LogAttrs(r.Context(), slog.LevelWarn, "api request refused", line...)
		return
	}
	if status < http.StatusBadRequest { // parameters that are wrong may be anything
		line = append(line, slog.String("query", limited(r.URL.RawQuery)))
	}
	line = append(line, slog.Int64("rows", q.rows.Load()), slog.Float64("store_ms", float64(q.storeTime.Load())/float64(time.Millisecond)))
	a.logger.LogAttrs(r.Context(), slog.LevelInfo, "api request", line...)
}

// sample tells whether to log a refusal, and how many were not logged since the last one.
func (a *audit) sample(r Reason, now time.Time) (unsaid uint64, say bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.said[r].IsZero() && now.Sub(a.said[r]) < sayEvery {
		a.kept[r]++
		return 0, false
	}
	unsaid, a.said[r], a.kept[r] = a.kept[r], now, 0
	return unsaid, true
}

func limited(s string) string {
	if len(s) > maxLogged {
		return s[:maxLogged] + "..."
	}
	return s
}
