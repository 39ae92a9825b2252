package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// checker collects errors, each with the setting's name, value and source.
type checker struct {
	sources []Source
	wrong   []error
}

func (c *checker) bad(name, format string, args ...any) {
	s := c.source(name)
	c.wrong = append(c.wrong, fmt.Errorf("%s is %q (%s): %s", s.Name, s.Value, s.From, fmt.Sprintf(format, args...)))
}

// source returns a setting's value and its origin.
func (c *checker) source(name string) Source {
	return c.sources[slices.IndexFunc(c.sources, func(s Source) bool { return s.Name == name })]
}

func (c *checker) oneOf(name, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		c.bad(name, "must be one of %s", strings.Join(allowed, ", "))
	}
}

// isolation checks for a supported level, and explains known names of unsupported levels.
func (c *checker) isolation(name, value string) {
	switch value {
	case "namespace", "wasm", "command", "external":
		c.bad(name, "is not supported; the strongest isolation is confined")
	default:
		c.oneOf(name, value, "auto", "none", "process", "confined")
	}
}

func (c *checker) atLeast(name string, value, least int) {
	if value < least {
		c.bad(name, "must be at least %d", least)
	}
}

func (c *checker) positive(name string, value time.Duration) {
	if value <= 0 {
		c.bad(name, "must be longer than zero")
	}
}

// check rejects invalid settings before files and connections are opened.
func check(cfg *Config, sources []Source) error {
	c := &checker{sources: sources}
	c.oneOf("container-type", cfg.ContainerType, ContainerApp, ContainerWorker, ContainerWorkerAndApp)
	c.oneOf("log-level", cfg.LogLevel, "trace", "debug", "info", "warn", "error")
	c.oneOf("log-format", cfg.LogFormat, "console", "json")
	c.positive("drain-timeout", cfg.DrainTimeout)
	if cfg.DataDir == "" {
		c.bad("data-dir", "must name a directory")
	}
	if cfg.Namespace == "" || len(cfg.Namespace) > 128 {
		c.bad("namespace", "must have 1 to 128 characters")
	}
	if cfg.Role.RunsApp() {
		checkApp(c, cfg)
	}
	if cfg.Role.RunsWorker() {
		checkWorker(c, cfg)
	}
	if cfg.Role == Worker || cfg.Role == Client {
		if (cfg.ClientCert == "") != (cfg.ClientKey == "") {
			c.bad("client-cert", "client-cert and client-key must be set together")
		}
		if len(cfg.AppURLs) == 0 {
			c.bad("app-url", "must contain at least one URL")
		}
		for _, a := range cfg.AppURLs {
			if u, err := url.Parse(a); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
				c.bad("app-url", "each URL must look like http://HOST:PORT or https://HOST")
				break
			}
		}
	}
	return errors.Join(c.wrong...)
}

// address checks HOST:PORT and returns the host.
func (c *checker) address(name, value string) string {
	host, port, err := net.SplitHostPort(value)
	if n, numErr := strconv.Atoi(port); err != nil || numErr != nil || n < 0 || n > 65535 {
		c.bad(name, "must look like HOST:PORT")
	}
	return host
}

var basePath = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)+$`)

// Networks parses addresses and networks, as 10.0.0.1 and 10.0.0.0/8.
func Networks(list []string) (all []netip.Prefix, err error) {
	for _, text := range list {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			one, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("%q is neither an address nor a network, such as 10.0.0.1 or 10.0.0.0/8", text)
			}
			network = netip.PrefixFrom(one.Unmap(), one.Unmap().BitLen())
		}
		all = append(all, network.Masked())
	}
	return all, nil
}

func checkApp(c *checker, cfg *Config) {
	host := c.address("addr", cfg.Addr)
	if _, err := Networks(cfg.TrustedProxies); err != nil {
		c.bad("trusted-proxies", "%v", err)
	}
	if cfg.BasePath != "" && !basePath.MatchString(cfg.BasePath) {
		c.bad("base-path", "must be a path such as /sojourn or /team/sojourn")
	}
	if (cfg.TLSCert == "") != (cfg.TLSKey == "") {
		c.bad("tls-cert", "tls-cert and tls-key must be set together")
	}
	if cfg.TLSClientCA != "" && cfg.TLSCert == "" {
		c.bad("tls-client-ca", "requires tls-cert: client certificates are sent over TLS only")
	}
	c.oneOf("auth", cfg.Auth, AuthToken, AuthNone)
	if cfg.Auth == AuthNone && !loopback(host) {
		c.bad("auth", "is allowed only with a loopback address; addr is %s", cfg.Addr)
	}
	path, sqlite := strings.CutPrefix(cfg.DatabaseURL, "sqlite:")
	switch {
	case sqlite && path == "":
		c.bad("database-url", "sqlite: requires a file path")
	case !sqlite && !strings.HasPrefix(cfg.DatabaseURL, "postgres://") &&
		!strings.HasPrefix(cfg.DatabaseURL, "postgresql://"):
		c.bad("database-url", "must be sqlite:PATH or postgres://…")
	}
	if cfg.DatabaseURLFile != "" && c.source("database-url").From != "default" {
		c.bad("database-url-file", "cannot be combined with database-url; set only one of them")
	}
	c.positive("session-cleanup", cfg.SessionCleanup)
	c.positive("activity-log-age", cfg.ActivityLogAge)
	c.positive("audit-log-age", cfg.AuditLogAge)
	c.positive("attempt-lease", cfg.AttemptLease)
	c.atLeast("max-blamed-losses", cfg.MaxBlamed, 1)
	c.atLeast("quota-open-runs", cfg.QuotaOpenRuns, 0)
	c.atLeast("quota-starts-per-second", cfg.QuotaStarts, 0)
	c.atLeast("quota-stored-bytes", cfg.QuotaBytes, 0)
	c.atLeast("quota-schedules", cfg.QuotaSchedules, 0)
	c.atLeast("max-polls", cfg.MaxPolls, 1)
	c.atLeast("sockets-per-token", cfg.MaxSockets, 0)
	// Connections of the committer, the notifier, the listener and one reader.
	c.atLeast("postgres-pool", cfg.PostgresPool, 4)
	if len(cfg.SocketTransports) == 0 {
		c.bad("socket-transports", "must be websocket, polling or both")
	}
	for _, t := range cfg.SocketTransports {
		if t != "websocket" && t != "polling" {
			c.bad("socket-transports", "%s is neither websocket nor polling", t)
		}
	}
}

// loopback reports whether a listener at host is reachable only from this machine. An empty host means all interfaces.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func checkWorker(c *checker, cfg *Config) {
	if len(cfg.WorkerID) > 255 || strings.ContainsFunc(cfg.WorkerID, func(r rune) bool {
		return r <= ' ' || r == '/' || r == 0x7f
	}) {
		c.bad("worker-id", "must have at most 255 characters, no space and no slash")
	}
	c.oneOf("link", cfg.Link, "auto", "socket", "http")
	if cfg.WorkerAddr != "" {
		c.address("worker-addr", cfg.WorkerAddr)
	}
	c.atLeast("worker-concurrency", cfg.WorkerConcurrency, 0)
	if n, err := strconv.Atoi(cfg.WorkerMaxSessions); cfg.WorkerMaxSessions != "auto" && (err != nil || n < 0) {
		c.bad("worker-max-sessions", "must be auto or a number of at least 0")
	}
	c.atLeast("max-set-ups", cfg.MaxSetUps, 0)
	if _, err := protocol.ParseResources(strings.Join(cfg.Resources, ",")); err != nil {
		c.bad("resources", "%v", err)
	}
	c.atLeast("sticky-cache-size", cfg.StickyCacheSize, 1)
	if len(cfg.Queues) == 0 {
		c.bad("queues", "must name at least one queue")
	}
	for _, q := range cfg.Queues {
		if len(q) > 255 {
			c.bad("queues", "%.20s… is longer than 255 characters", q)
		}
	}
	if len(cfg.BuildID) > 255 {
		c.bad("build-id", "must have at most 255 characters")
	}
	c.isolation("isolation", cfg.Isolation)
	c.isolation("isolation-min-level", cfg.IsolationMin)
	c.oneOf("executor-cgroup", cfg.ExecutorCgroup, "auto", "none")
	c.atLeast("executor-memory", cfg.ExecutorMemory, 0)
	c.oneOf("handler-packages", cfg.Packages, "install", "scripts", "none")
	checkEgress(c, cfg)
	if u := cfg.ExecutorUIDs; u != "auto" && u != "none" {
		a, b, two := strings.Cut(u, "-")
		first, errFirst := strconv.Atoi(a)
		last, errLast := strconv.Atoi(b)
		if !two || errFirst != nil || errLast != nil || first < 1 || last < first || last >= 1<<31-1 {
			c.bad("executor-uids", "must be auto, none or a range of user IDs such as 60600-60999")
		}
	}
	if !cfg.Role.RunsApp() {
		c.positive("attempt-lease", cfg.AttemptLease)
	}
	c.positive("session-lease", cfg.SessionLease)
	c.positive("session-idle", cfg.SessionIdle)
	c.positive("snapshot-max-age", cfg.SnapshotMaxAge)
	c.positive("snapshot-timeout", cfg.SnapshotTimeout)
	if cfg.SnapshotTimeout > 5*time.Minute {
		c.bad("snapshot-timeout", "must be at most 5 minutes")
	}
	if cfg.SessionBuffer < 0 {
		c.bad("session-buffer", "must not be negative")
	} else if cfg.SessionLease >= shortLease && cfg.SessionBuffer >= cfg.SessionLease {
		c.bad("session-buffer", "must be shorter than session-lease, which is %s", formatValue(cfg.SessionLease))
	}
	checkIdle(c, cfg)
}

func checkEgress(c *checker, cfg *Config) {
	c.oneOf("egress", cfg.Egress, "auto", "none", "filtered", "open")
	held := cfg.Egress == "none" || cfg.Egress == "filtered"
	if held && (cfg.Isolation == "none" || cfg.Isolation == "process") {
		c.bad("egress", "cannot be enforced with isolation %s; set isolation to confined", cfg.Isolation)
	}
	if len(cfg.EgressAllow) > 0 && (cfg.Egress == "none" || cfg.Egress == "open") {
		c.bad("egress-allow", "applies only to egress filtered; egress is %s", cfg.Egress)
	}
	for _, e := range cfg.EgressAllow {
		if e == "" || strings.ContainsAny(e, "*@?# ") || strings.Contains(e, "://") {
			c.bad("egress-allow", "each must look like HOST, HOST:PORT or an address range such as 10.0.0.0/8")
			break
		}
	}
}

// shortLease is the length below which a lease is renewed after half of its length, regardless of the buffer.
const shortLease = 15 * time.Second

// renewal returns the interval in which the lease of a running attempt is renewed.
func renewal(lease, buffer time.Duration) time.Duration {
	if lease < shortLease {
		return lease / 2
	}
	return min(10*time.Second, lease/3, lease-buffer)
}

// checkIdle rejects an idle timeout that is not longer than the interval between two heartbeats of a running attempt.
// With it, a session could expire as idle while an activity runs in it.
func checkIdle(c *checker, cfg *Config) {
	if len(c.wrong) > 0 && (cfg.AttemptLease <= 0 || cfg.SessionIdle <= 0) {
		return // these errors were already reported
	}
	least := max(cfg.AttemptLease-cfg.SessionBuffer, renewal(cfg.AttemptLease, cfg.SessionBuffer))
	if cfg.SessionIdle > least {
		return
	}
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }
	c.bad("session-idle", "must be longer than %s s, the longest time between two renewals of an attempt "+
		"(attempt-lease %s s minus session-buffer %s s); lengthen session-idle or shorten attempt-lease",
		seconds(least), seconds(cfg.AttemptLease), seconds(cfg.SessionBuffer))
}
