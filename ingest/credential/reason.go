package credential

import "fmt"

// Reason is why a peer is nobody.
type Reason uint8

// The reasons.
const (
	NoCredential Reason = iota
	UnknownToken
	ExpiredToken
	ForeignCertificate // not of our authority, or not for clients
	ExpiredCertificate // or not valid yet
	NamelessCertificate
	NotListed // a valid credential whose name no list has

	// NumReasons bounds every Reason.
	NumReasons
)

var reasonNames = [NumReasons]string{
	"no_credential", "unknown_token", "expired_token", "foreign_certificate", "expired_certificate", "nameless_certificate", "not_listed",
}

// String is the reason as metrics and logs name it, in snake case.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason_%d", uint8(r))
}

// Error is why a peer was refused. What it says is for logs, not for the peer.
type Error struct {
	Reason Reason
	Name   string // as far as it is known
	Cause  error  // nil for none
}

func (e *Error) Error() string {
	text := "refuse peer: " + e.Reason.String()
	if e.Name != "" {
		text += fmt.Sprintf(": %q", e.Name)
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap is what was wrong.
func (e *Error) Unwrap() error { return e.Cause }
