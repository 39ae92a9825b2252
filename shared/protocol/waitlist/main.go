// Command waitlist generates the dashboard's list of wait reasons and run statuses. It runs in any directory of the
// module.
package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "waitlist:", err)
		os.Exit(1)
	}
}

func write() error {
	root, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	for name, script := range map[string][]byte{"waits.ts": waits(), "statuses.ts": statuses()} {
		file := filepath.Join(strings.TrimSpace(string(root)), "web", "src", "api", name)
		if is, _ := os.ReadFile(file); bytes.Equal(is, script) {
			continue // a newer file causes a new build of the dashboard
		}
		if err := os.WriteFile(file, script, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func statuses() []byte {
	var out bytes.Buffer
	out.WriteString(
		"// Written by go generate from shared/protocol/status.go. Do not edit.\n\n/** How runs stand, in the order in which people are offered it. */\nexport const runStatuses = [",
	)
	for i, s := range protocol.RunStatuses {
		if i > 0 {
			out.WriteString(", ")
		}
		fmt.Fprintf(&out, "%q", s)
	}
	out.WriteString("] as const;\n\nexport type RunStatus = (typeof runStatuses)[number];\n")
	return out.Bytes()
}

func waits() []byte {
	var out bytes.Buffer
	out.WriteString(
		"// Written by go generate from shared/protocol/wait.go, which says how the texts are read. Do not edit.\n\nexport const waitRules = {\n",
	)
	for _, r := range protocol.WaitRules {
		fmt.Fprintf(&out, "  %s: { form: %q, text: %q },\n", r.Reason, r.Form, r.Text)
	}
	out.WriteString(
		"} as const;\n\nexport type WaitReason = keyof typeof waitRules;\n\nexport const waitSubjects: Partial<Record<string, string>> = {\n",
	)
	for _, kind := range slices.Sorted(maps.Keys(protocol.WaitSubjects)) {
		fmt.Fprintf(&out, "  %s: %q,\n", kind, protocol.WaitSubjects[kind])
	}
	out.WriteString("};\n")
	return out.Bytes()
}
