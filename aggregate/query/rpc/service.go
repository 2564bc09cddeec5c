package rpc

import (
	"context"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// Cells implements wire.QueryServiceHandler.
func (s *service) Cells(ctx context.Context, r *connect.Request[wire.CellsRequest]) (*connect.Response[wire.CellsResponse], error) {
	return ask(ctx, s, "cells", r.Msg, cells)
}

// Matrix implements wire.QueryServiceHandler.
func (s *service) Matrix(ctx context.Context, r *connect.Request[wire.MatrixRequest]) (*connect.Response[wire.MatrixResponse], error) {
	return ask(ctx, s, "matrix", r.Msg, matrix)
}

// Path implements wire.QueryServiceHandler.
func (s *service) Path(ctx context.Context, r *connect.Request[wire.PathRequest]) (*connect.Response[wire.PathResponse], error) {
	return ask(ctx, s, "path", r.Msg, path)
}

// Locations implements wire.QueryServiceHandler.
func (s *service) Locations(ctx context.Context, r *connect.Request[wire.LocationsRequest]) (*connect.Response[wire.LocationsResponse], error) {
	return ask(ctx, s, "locations", r.Msg, locations)
}

// Timeline implements wire.QueryServiceHandler.
func (s *service) Timeline(ctx context.Context, r *connect.Request[wire.TimelineRequest]) (*connect.Response[wire.TimelineResponse], error) {
	return ask(ctx, s, "timeline", r.Msg, timeline)
}

// Flows implements wire.QueryServiceHandler.
func (s *service) Flows(ctx context.Context, r *connect.Request[wire.FlowsRequest]) (*connect.Response[wire.FlowsResponse], error) {
	return ask(ctx, s, "flows", r.Msg, flows)
}

// Findings implements wire.QueryServiceHandler.
func (s *service) Findings(ctx context.Context, r *connect.Request[wire.FindingsRequest]) (*connect.Response[wire.FindingsResponse], error) {
	return ask(ctx, s, "findings", r.Msg, findings)
}

// Fabric implements wire.QueryServiceHandler.
func (s *service) Fabric(ctx context.Context, r *connect.Request[wire.FabricRequest]) (*connect.Response[wire.FabricResponse], error) {
	return ask(ctx, s, "fabric", r.Msg, fabric)
}

// Health implements wire.QueryServiceHandler.
func (s *service) Health(ctx context.Context, r *connect.Request[wire.HealthRequest]) (*connect.Response[wire.HealthResponse], error) {
	return ask(ctx, s, "health", r.Msg, health)
}
