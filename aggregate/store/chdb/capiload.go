//go:build !static

package chdb

import (
	"fmt"

	"github.com/ebitengine/purego"
)

// linkable reports whether this program can load the engine's library: a statically linked
// program cannot.
const linkable = true

// loadCAPI loads the library at path into the process and binds the symbols in use. Go keeps the
// process's signal handlers.
func loadCAPI(path string) (api *capi, err error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("load engine %s: %w", path, err)
	}
	// purego panics on a missing symbol, which an older library would cause.
	defer func() {
		if r := recover(); r != nil {
			api, err = nil, fmt.Errorf("bind engine %s: %v: want version 26.7 or later: set %s to one, or run \"make engine\" in a checkout", path, r, LibraryEnv)
		}
	}()
	api = new(capi)
	for symbol, function := range map[string]any{
		"chdb_set_signal_handlers_enabled": &api.setSignalHandlers,
		"chdb_connect":                     &api.connect,
		"chdb_close_conn":                  &api.closeConn,
		"chdb_query_with_params_n":         &api.queryParams,
		"chdb_stream_query_with_params_n":  &api.streamParams,
		"chdb_stream_fetch_result":         &api.streamFetch,
		"chdb_stream_cancel_query":         &api.streamCancel,
		"chdb_classify_query_n":            &api.classify,
		"chdb_stream_insert_n":             &api.insertStart,
		"chdb_stream_append":               &api.insertAppend,
		"chdb_stream_done":                 &api.insertDone,
		"chdb_stream_cancel_insert":        &api.insertCancel,
		"chdb_stream_insert_error":         &api.insertError,
		"chdb_destroy_insert_stream":       &api.insertDestroy,
		"chdb_result_buffer":               &api.resultBuffer,
		"chdb_result_length":               &api.resultLength,
		"chdb_result_error":                &api.resultError,
		"chdb_destroy_query_result":        &api.resultDestroy,
		"chdb_result_rows_read":            &api.resultRows,
		"chdb_result_bytes_read":           &api.resultBytes,
		"chdb_result_storage_rows_read":    &api.resultTableRows,
		"chdb_result_storage_bytes_read":   &api.resultTableBytes,
		"chdb_result_elapsed":              &api.resultElapsed,
	} {
		purego.RegisterLibFunc(function, handle, symbol)
	}
	api.setSignalHandlers(0)
	return api, nil
}
