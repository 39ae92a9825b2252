package workerapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The description of the protocol is generated from the table of routes, so that a client generated from it cannot
// contain a route that does not exist.

// described is the protocol's description of itself.
type described struct {
	Version         string                      `json:"version"`
	Minimum         string                      `json:"minimum_version"`
	Header          string                      `json:"header"` // header with the version
	WorkflowVerbs   []string                    `json:"workflow_task_verbs"`
	ActivityVerbs   []string                    `json:"activity_task_verbs"`
	QueryVerbs      []string                    `json:"query_task_verbs"`
	ValidationVerbs []string                    `json:"update_validation_task_verbs"`
	SessionVerbs    []string                    `json:"worker_session_verbs"`
	Others          []protocol.CommandType      `json:"non_terminal_commands"`
	Terminal        []protocol.CommandType      `json:"terminal_commands"` // commands that close the run
	HistoryPage     int                         `json:"default_history_page_size"`
	MaxHistoryPage  int                         `json:"max_history_page_size"`
	Compression     protocol.HistoryCompression `json:"history_compression"`
	LongPoll        describedWait               `json:"long_poll"`
	Statuses        []protocol.PollStatus       `json:"poll_statuses"`
	Routes          []describedRoute            `json:"routes"`
}

// describedWait contains the limits for the duration of a poll.
type describedWait struct {
	Default int `json:"default_timeout_seconds"`
	Min     int `json:"min_timeout_seconds"`
	Max     int `json:"max_timeout_seconds"`
}

type describedRoute struct {
	Method    string `json:"method"`
	Path      string `json:"path"`
	Operation string `json:"operation"`
	Sojourn   bool   `json:"x-sojourn,omitempty"` // not part of the published API
}

// describe returns the description of the protocol: its version, the requests of each task kind, commands, pages, waits
// and routes.
func describe(*API, *call) (response, error) {
	var routes []describedRoute
	verbs := map[string][]string{}
	for _, rt := range Routes() {
		routes = append(routes, describedRoute{rt.Method, rt.Pattern, rt.Operation, rt.Sojourn})
		if bridge, verb, ok := bridgeOf(rt.Pattern); ok {
			if rt.Method == http.MethodGet && verb == "claim" {
				verb = "claim_status"
			}
			if !slices.Contains(verbs[bridge], verb) {
				verbs[bridge] = append(verbs[bridge], verb)
			}
		}
	}
	terminal, others := []protocol.CommandType{}, []protocol.CommandType{}
	for _, c := range engine.Supported {
		if c.Terminal() {
			terminal = append(terminal, c)
		} else {
			others = append(others, c)
		}
	}
	return response{http.StatusOK, described{
		Version: Version, Minimum: "1.0", Header: VersionHeader,
		WorkflowVerbs: verbs["workflow"], ActivityVerbs: verbs["activity"], QueryVerbs: verbs["query"],
		ValidationVerbs: verbs["update-validation"],
		SessionVerbs:    []string{"create", "heartbeat", "release", "close"}, Others: others, Terminal: terminal,
		HistoryPage: defaultHistoryPage, MaxHistoryPage: maxHistoryPage, Compression: historyCompression,
		LongPoll: describedWait{Default: defaultWait, Min: 1, Max: maxWait},
		Statuses: []protocol.PollStatus{
			protocol.PollLeased, protocol.PollEmpty, protocol.PollThrottled, protocol.PollUnavailable, protocol.PollBackend,
			protocol.PollDraining,
		},
		Routes: routes,
	}}, nil
}

// bridgeOf parses /api/worker/BRIDGE-tasks/…/VERB.
func bridgeOf(pattern string) (bridge, verb string, ok bool) {
	rest := strings.TrimPrefix(pattern, "/api/worker/")
	bridge, _, ok = strings.Cut(rest, "-tasks/")
	return bridge, pattern[strings.LastIndexByte(pattern, '/')+1:], ok
}
