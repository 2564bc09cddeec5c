package access

import "fmt"

// Reason is why a request was not passed on, or not answered as it was asked.
type Reason uint8

// The reasons. The zero value is none.
const (
	none Reason = iota
	preflight
	unauthenticated
	forbidden
	foreignOrigin
	credentialInURL
	failures
	rateLimit
	concurrent
	watchers
	storeTime
	revoked

	numReasons
)

var reasonNames = [numReasons]string{
	"none", "preflight", "unauthenticated", "forbidden", "foreign_origin", "credential_in_url",
	"failures", "requests", "concurrent", "watchers", "store_time", "revoked",
}

// String is the reason as metrics and logs name it.
func (r Reason) String() string {
	if r < numReasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason_%d", uint8(r))
}

// refusal tells whether a request was refused.
func (r Reason) refusal() bool { return r > preflight }
