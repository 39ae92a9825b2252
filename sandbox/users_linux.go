package sandbox

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// mayChangeUsers says why this process cannot start others as another user, watch and end them, and clean up after
// them.
func mayChangeUsers() error {
	if os.Geteuid() != 0 {
		return errors.New("the worker is not root")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	for name, c := range map[string]uint{
		"CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_FOWNER": unix.CAP_FOWNER,
		"CAP_KILL": unix.CAP_KILL, "CAP_SETUID": unix.CAP_SETUID, "CAP_SETGID": unix.CAP_SETGID,
	} {
		if sets[c/32].Effective&(1<<(c%32)) == 0 {
			return fmt.Errorf("the worker is root without %s", name)
		}
	}
	return nil
}

// ours says why something is not a folder of this process's user.
func ours(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not this user's folder", dir)
	}
	return nil
}
