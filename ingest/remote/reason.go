package remote

import (
	"fmt"

	"github.com/csigscope/csigscope/ingest/credential"
)

// Reason is why something was refused.
type Reason uint8

// The reasons. Those before ReasonForged concern peers that are nobody yet.
const (
	ReasonNoCredential        = Reason(credential.NoCredential)
	ReasonUnknownToken        = Reason(credential.UnknownToken)
	ReasonExpiredToken        = Reason(credential.ExpiredToken)
	ReasonForeignCertificate  = Reason(credential.ForeignCertificate)
	ReasonExpiredCertificate  = Reason(credential.ExpiredCertificate)
	ReasonNamelessCertificate = Reason(credential.NamelessCertificate)
	ReasonNotListed           = Reason(credential.NotListed)
)

// Further reasons follow those of credentials.
const (
	ReasonExporters     Reason = Reason(credential.NumReasons) + iota // too many of them
	ReasonConnections                                                 // too many at a time
	ReasonHandshake                                                   // of TLS that did not come about, for another reason than the certificate
	ReasonForeignOrigin                                               // for a host that is not this machine, or sent by a web page

	ReasonForged    // calls itself by another one's name
	ReasonOversized // beyond a hard limit of size
	ReasonMalformed // no message of the protocol
	ReasonInFlight  // too many requests at a time
	ReasonBuffered  // all exporters' requests together are too large
	ReasonRequestRate
	ReasonByteRate
	ReasonRowRate
	ReasonNames       // more names than an exporter may describe, or than there is room for
	ReasonContested   // a name that a fabric file or another exporter describes otherwise
	ReasonDescription // whose text and epoch do not fit, or whose strings are too long
	ReasonSink        // the store did not take it, or not in time
	ReasonEnds        // ends of runs that the store did not take before the collector ended, or too many of them

	// The outcomes of blocks and batches; see the protocol.
	ReasonInvalid
	ReasonImpossible // more than a network carries, or a value that its unit does not have
	ReasonFuture
	ReasonPast
	ReasonStale
	ReasonStreams
	ReasonForeign
	ReasonUnsupported

	// NumReasons bounds every Reason.
	NumReasons
)

var reasonNames = [NumReasons]string{
	"no_credential", "unknown_token", "expired_token", "foreign_certificate", "expired_certificate",
	"nameless_certificate", "not_listed", "exporters", "connections", "handshake", "foreign_origin",
	"forged", "oversized", "malformed", "in_flight", "buffered", "request_rate", "byte_rate", "row_rate", "names", "contested",
	"description", "sink", "ends",
	"invalid", "impossible", "future", "past", "stale", "streams", "foreign", "unsupported",
}

// String is the reason as metrics and logs name it, in snake case.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason_%d", uint8(r))
}
