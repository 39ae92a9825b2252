package sandbox

import (
	"os"
	"path/filepath"

	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
)

// systemFiles are the files of the system that programs need: libraries, certificates, names of hosts, time zones and
// locales, and information about the machine. Folders of applications, such as /usr/src, /opt and /srv, and other
// processes are not included.
var systemFiles = []string{
	"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/share", "/usr/include",
	"/usr/local/bin", "/usr/local/sbin", "/usr/local/lib", "/usr/local/lib64", "/usr/local/share", "/usr/local/include",
	"/bin", "/sbin", "/lib", "/lib32", "/lib64",
	"/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives",
	"/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path",
	"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/certs",
	"/etc/pki/tls/cert.pem", "/etc/pki/tls/openssl.cnf",
	"/etc/pki/ca-trust", "/etc/ca-certificates", "/etc/crypto-policies",
	"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/systemd/resolve/stub-resolv.conf", "/etc/hosts",
	"/etc/host.conf", "/etc/nsswitch.conf",
	"/etc/gai.conf", "/etc/services", "/etc/protocols", "/etc/hostname", "/etc/passwd", "/etc/group", "/etc/os-release",
	"/etc/mime.types",
	"/etc/localtime", "/etc/timezone", "/etc/locale.conf", "/etc/locale.alias", "/etc/default/locale", "/etc/fonts",
	"/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version", "/proc/filesystems",
	"/proc/sys/kernel/osrelease", "/proc/sys/kernel/ostype", "/proc/sys/kernel/cap_last_cap",
	"/proc/sys/kernel/ngroups_max", "/proc/sys/vm/overcommit_memory",
	"/proc/sys/net/core/somaxconn",
	"/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage",
}

// devices are the device files that every executor may open.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// rules returns the lockdown rules of an executor of this language, without its scratch folder: it may read its
// runtime, its code and the configured paths.
func (l *language) rules(o Options, k lockdown.Kernel, shims string) lockdown.Rules {
	r := lockdown.Rules{Devices: devices, Landlock: k.Landlock, Filter: true}
	r.Read = append(append(r.Read, systemFiles...), runtimeFiles(l.program)...)
	if l.name != RuntimeNative {
		r.Read = append(r.Read, filepath.Join(shims, shimName[l.name]), filepath.Join(shims, proxyName))
	}
	r.Read = append(r.Read, codeFiles(o.Handlers, o.Private)...)
	for _, path := range o.Read {
		r.Read = append(r.Read, pathsAround(path, o.Private)...)
	}
	for _, path := range o.Write {
		r.Write = append(r.Write, pathsAround(path, o.Private)...)
	}
	return r
}

// runtimeFiles returns the paths of a program and of the files installed with it. If the program is in a bin folder, as
// in a virtual environment, these are the sibling folders such as lib. The parent folder itself is not included,
// because it may be a home directory.
func runtimeFiles(program string) []string {
	all := []string{program}
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return all
	}
	for _, path := range []string{program, real} {
		bin := filepath.Dir(path)
		if filepath.Base(bin) != "bin" {
			continue
		}
		for _, sibling := range []string{"bin", "lib", "lib64", "libexec", "include", "share", "ssl", "pyvenv.cfg"} {
			all = append(all, filepath.Join(filepath.Dir(bin), sibling))
		}
	}
	return append(all, real)
}

// codeFiles returns the paths of a handler folder and of the Node packages in it and in its parent folders.
func codeFiles(handlers, private string) []string {
	if handlers == "" {
		return nil
	}
	dir, err := filepath.Abs(handlers)
	if err != nil {
		return nil
	}
	all := pathsAround(dir, private)
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		all = append(all, filepath.Join(parent, "node_modules"), filepath.Join(parent, "package.json"))
		if parent == filepath.Dir(parent) {
			return all
		}
	}
}

// pathsAround returns the paths that grant access to a path without a private folder below it: if there is one, it
// returns all current siblings of the folders on the way to it.
func pathsAround(path, private string) []string {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	if private == "" {
		return []string{path}
	}
	real, kept := followed(path), followed(private)
	if lockdown.Below(real, kept) {
		return nil
	}
	if !lockdown.Below(kept, real) {
		return []string{path}
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range entries {
		all = append(all, pathsAround(filepath.Join(real, e.Name()), private)...)
	}
	return all
}

// followed returns a path with its symbolic links resolved, or the absolute path if it does not exist.
func followed(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}
