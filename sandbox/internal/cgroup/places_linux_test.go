package cgroup

import (
	"maps"
	"testing"
)

// The cgroup path of this process depends on the mounts, which differ in a container.
func TestPlacesAreFoundWhereTheyAreMounted(t *testing.T) {
	const (
		second = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
		hybrid = "31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
			"32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
			"33 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
		bound = "33 30 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
		space = "30 23 0:26 / /mnt/my\\040groups rw - cgroup2 cgroup2 rw\n"
	)
	for _, c := range []struct {
		name, own, mounts, two string
		homes                  map[string]string
	}{
		{
			"version 2", "0::/system.slice/sojourn.service\n", second, "/sys/fs/cgroup/system.slice/sojourn.service",
			map[string]string{},
		},
		{
			"both", "4:cpu,cpuacct:/a\n3:memory:/b\n1:name=systemd:/c\n0::/d\n", hybrid, "/sys/fs/cgroup/unified/d",
			map[string]string{
				"cpu": "/sys/fs/cgroup/cpu,cpuacct/a", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct/a",
				"memory": "/sys/fs/cgroup/memory/b",
			},
		},
		{
			"a container's part", "3:memory:/docker/abc/x\n", bound, "",
			map[string]string{"memory": "/sys/fs/cgroup/memory/x"},
		},
		{"another container's", "3:memory:/docker/other\n", bound, "", map[string]string{"memory": ""}},
		{"a name with a space", "0::/\n", space, "/mnt/my groups", map[string]string{}},
		{"outside of the namespace", "0::/../other\n", second, "", map[string]string{}},
		{"nothing mounted", "0::/\n", "", "", map[string]string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			homes, two := places(c.own, c.mounts)
			if two != c.two || !maps.Equal(homes, c.homes) {
				t.Errorf("got %q and %q, want %q and %q", homes, two, c.homes, c.two)
			}
		})
	}
}
