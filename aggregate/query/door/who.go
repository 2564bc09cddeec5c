package door

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/csigscope/csigscope/aggregate/query/access"
	"github.com/csigscope/csigscope/ingest/credential"
)

// who tells access who has come.
type who struct{ gate *credential.Gate }

// Identify implements access.Authenticator.
func (w who) Identify(r *http.Request) (access.Peer, error) {
	p, err := w.gate.Identify(r)
	return access.Peer{Name: p.Name, Role: access.Role(p.Role), How: string(p.How)}, err
}

// refusals logs credentials that are refused, each reason now and then.
type refusals struct {
	logger *slog.Logger
	some   [credential.NumReasons]rate.Sometimes
}

func newRefusals(logger *slog.Logger) *refusals {
	r := &refusals{logger: logger}
	for i := range r.some {
		r.some[i].Interval = 10 * time.Second
	}
	return r
}

func (r *refusals) tell(why credential.Reason, attrs ...slog.Attr) {
	r.some[why].Do(func() {
		r.logger.LogAttrs(context.Background(), slog.LevelWarn, "credential refused", append(attrs, slog.String("reason", why.String()))...)
	})
}
