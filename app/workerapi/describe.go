package workerapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// describe tells what the protocol is: its version, the verbs of each bridge, the commands, pages, waits and routes.
func describe(*API, *call) (answer, error) {
	type line struct {
		Method    string `json:"method"`
		Path      string `json:"path"`
		Operation string `json:"operation"`
		Sojourn   bool   `json:"x-sojourn,omitempty"`
	}
	var routes []line
	verbs := map[string][]string{}
	for _, rt := range Routes() {
		routes = append(routes, line{rt.Method, rt.Pattern, rt.Operation, rt.Sojourn})
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
	return answer{http.StatusOK, object{
		"version": Version, "minimum_version": "1.0", "header": VersionHeader,
		"workflow_task_verbs": verbs["workflow"], "activity_task_verbs": verbs["activity"], "query_task_verbs": verbs["query"],
		"update_validation_task_verbs": verbs["update-validation"], "worker_session_verbs": []string{"create", "heartbeat", "release", "close"},
		"non_terminal_commands": others, "terminal_commands": terminal,
		"default_history_page_size": defaultHistoryPage, "max_history_page_size": maxHistoryPage, "history_compression": historyCompression,
		"long_poll": object{"default_timeout_seconds": defaultWait, "min_timeout_seconds": 1, "max_timeout_seconds": maxWait},
		"poll_statuses": []protocol.PollStatus{
			protocol.PollLeased, protocol.PollEmpty, protocol.PollThrottled, protocol.PollUnavailable, protocol.PollDraining,
		},
		"routes": routes,
	}}, nil
}

// bridgeOf takes /api/worker/BRIDGE-tasks/…/VERB apart.
func bridgeOf(pattern string) (bridge, verb string, ok bool) {
	rest := strings.TrimPrefix(pattern, "/api/worker/")
	bridge, _, ok = strings.Cut(rest, "-tasks/")
	return bridge, pattern[strings.LastIndexByte(pattern, '/')+1:], ok
}
