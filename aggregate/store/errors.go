package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/csigscope/csigscope/aggregate/store/native"
)

// Errors for callers to tell apart.
var (
	ErrUnreachable = errors.New("server unreachable") // no connection, or it broke off
	ErrBusy        = errors.New("store busy")         // no answer in time, or too many queries at a time
	ErrDenied      = errors.New("access denied")      // wrong user or password, or the user lacks a right
	ErrNoSchema    = errors.New("no schema in the database: nothing was stored there yet, \"csigscope schema migrate\" makes it")
	ErrNewerSchema = errors.New("schema is newer than this program: use a newer csigscope")
	ErrOldSchema   = errors.New("schema is older than this program: run \"csigscope schema migrate\"")
	ErrTooManyRows = errors.New("too many rows")
	ErrClosed      = errors.New("store closed")
	ErrReadOnly    = errors.New("store opened without a writer")
	ErrOutbox      = errors.New("outbox cannot be written: name a folder on another disk with --outbox, or switch it off with --outbox none")
	ErrRowsLost    = errors.New("rows were lost on their way to the store")
	// ErrMalformedAnswer is the error for a server that breaks the protocol.
	ErrMalformedAnswer = native.ErrMalformed

	// ErrEarlierSchema is the error for databases too old for any migration.
	ErrEarlierSchema = errors.New("schema is from before version 1, which this program does not read: run \"csigscope schema drop\" with the same --store and replay the captures again, or name a new store with --store")
)

// Server error codes that change the store's behavior.
const (
	codeUnknownFunction  = 46 // a parameterized view that does not exist
	codeUnknownTable     = 60
	codeUnknownDatabase  = 81
	codeTimeout          = 159
	codeTooManyRows      = 158
	codeTooManyQueries   = 202
	codeSocketTimeout    = 209
	codeNetwork          = 210
	codeMemoryLimit      = 241
	codeTableReadOnly    = 242
	codeTooManyParts     = 252
	codeWrongPassword    = 193
	codeUnknownUser      = 192
	codeAuthentication   = 516
	codeNotEnoughRights  = 497
	codeKeeper           = 999
	codeNoKeeper         = 225
	codeNoReplicas       = 254
	codeNoSuchPart       = 232 // merged or dropped
	codePartLocked       = 384 // a replica merges it
	codeNoConnections    = 279 // to the shards of a split table
	codeTooFewReplicas   = 285 // for the quorum of an insert
	codeQuorumPending    = 286 // of an earlier insert
	codeUnknownStatus    = 319 // of an insert whose quorum did not answer
	codeAlterConflict    = 517 // another replica changes the table
	codeTooSlow          = 160
	codeTooManyResults   = 396
	codeQueryWasCanceled = 394

	codeUnparsable         = 6
	codeUnreadable         = 33
	codeTypeMismatch       = 53
	codeUnconvertible      = 70
	codeIncorrectData      = 117
	codeViolatedConstraint = 469
)

func exceptionCode(err error) int32 {
	if e, ok := errors.AsType[*clickhouse.Exception](err); ok {
		return e.Code
	}
	return 0
}

// transient reports whether the same rows may succeed later: the server is unreachable,
// restarting or busy.
func transient(err error) bool {
	switch code := exceptionCode(err); code {
	case 0:
	case codeTooManyParts:
		return !tooManyPartitions(err)
	case codeTimeout, codeTooManyQueries, codeSocketTimeout, codeNetwork, codeMemoryLimit,
		codeTableReadOnly, codeKeeper, codeTooSlow, codeQueryWasCanceled,
		codeNoKeeper, codeNoReplicas, codeNoConnections, codeTooFewReplicas, codeQuorumPending, codeUnknownStatus, codeAlterConflict:
		return true
	default:
		return false
	}
	return connectionLost(err)
}

// serverFailed reports errors after which another server of the same shard may succeed.
func serverFailed(err error) bool {
	switch exceptionCode(err) {
	case 0:
		return connectionLost(err)
	case codeSocketTimeout, codeNetwork, codeTableReadOnly, codeKeeper, codeNoKeeper, codeNoConnections, codeTooFewReplicas, codeUnknownStatus:
		return true
	}
	return false
}

// refused reports errors that these rows will always meet: the server is reachable, has the
// table, and rejects their values.
func refused(err error) bool {
	switch exceptionCode(err) {
	case codeUnparsable, codeUnreadable, codeTypeMismatch, codeUnconvertible, codeIncorrectData, codeViolatedConstraint:
		return true
	}
	return tooManyPartitions(err)
}

// tooManyPartitions reports the refusal of an insert for the number of its partitions. It has the
// code of a table with too many parts, which a server merges in time.
func tooManyPartitions(err error) bool {
	e, ok := errors.AsType[*clickhouse.Exception](err)
	return ok && e.Code == codeTooManyParts && strings.Contains(e.Message, "partitions for single INSERT block")
}

// connectionLost reports failures of the connection, unlike errors that the server answers.
func connectionLost(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	for _, lost := range []error{
		io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNREFUSED,
		syscall.EPIPE, syscall.ENOENT, context.DeadlineExceeded,
		clickhouse.ErrAcquireConnTimeout, clickhouse.ErrAcquireConnNoAddress, clickhouse.ErrServerUnexpectedData,
	} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return false
}

// busy reports errors of a server that does not answer in time, unlike one that is unreachable.
func busy(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return false
	}
	timed, ok := errors.AsType[net.Error](err)
	return ok && timed.Timeout() || exceptionCode(err) == codeTooManyQueries ||
		errors.Is(err, clickhouse.ErrAcquireConnTimeout) || errors.Is(err, context.DeadlineExceeded)
}

// describe formats an error as one clear line: which server, which step failed, how to fix it.
func (s *Store) describe(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrOutbox) {
		return fmt.Errorf("%s: %w", what, err)
	}
	host := s.host
	if busy(err) {
		return fmt.Errorf("%s at %s: %w: %w: try again later", what, host, ErrBusy, &flat{err})
	}
	switch code := exceptionCode(err); code {
	case codeUnknownTable, codeUnknownDatabase, codeUnknownFunction:
		return fmt.Errorf("%s at %s, database %s: %w (%s)", what, host, s.database, ErrNoSchema, oneLine(err))
	case codeAuthentication, codeWrongPassword, codeUnknownUser:
		return fmt.Errorf("%s at %s: %w: check the user and the password, or set %s", what, host, ErrDenied, PasswordVariable)
	case codeNotEnoughRights:
		return fmt.Errorf("%s at %s: %w: %s", what, host, ErrDenied, oneLine(err))
	case codeTooManyResults:
		return fmt.Errorf("%s at %s: %w: ask for a shorter range or a longer step", what, host, ErrTooManyRows)
	case 0:
	default:
		return fmt.Errorf("%s at %s: %w", what, host, &flat{err})
	}
	if e, ok := errors.AsType[*native.Error](err); ok {
		if errors.Is(e, native.ErrOldRevision) {
			return fmt.Errorf("%s at %s: %w: %w: need ClickHouse %s or later, or --store embedded", what, host, ErrOldServer, e, oldestServer)
		}
		return fmt.Errorf("%s at %s: %w", what, host, e)
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s at %s: %w", what, host, err)
	}
	if connectionLost(err) {
		return fmt.Errorf("%s at %s: %w: %w: start the server, name another with --store clickhouse://USER@HOST:PORT/DB, or use --store embedded",
			what, host, ErrUnreachable, &flat{err})
	}
	return fmt.Errorf("%s at %s: %w", what, host, &flat{err})
}

// flat is an error with its text on one line: servers answer with several.
type flat struct{ err error }

func (f *flat) Error() string { return oneLine(f.err) }
func (f *flat) Unwrap() error { return f.err }

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
