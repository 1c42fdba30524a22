package cluster

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// settleAfter is how long after a cluster is ready its start is over.
const settleAfter = 3 * time.Second

// settle gives back what only the start needed: heap, and the pages of the
// program's code, most of which runs once. Pages that are needed again come
// back from the page cache.
func (c *Cluster) settle(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.ready:
	}
	timer := time.NewTimer(settleAfter)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-timer.C:
	}
	debug.FreeOSMemory()
	if err := releaseCode(); err != nil {
		klog.FromContext(ctx).V(2).Info("Pages of the program stay mapped", "err", err)
	}
	<-ctx.Done()
	return nil
}

// releaseCode unmaps the resident pages of the executable's code (madvise(2),
// MADV_DONTNEED). It leaves data alone, even what cannot be written: a dynamic
// linker may have written there before it was protected, and that would be lost.
func releaseCode() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var start, end uintptr
		var permissions string
		line := lines.Text()
		if _, err := fmt.Sscanf(line, "%x-%x %s", &start, &end, &permissions); err != nil {
			return fmt.Errorf("read /proc/self/maps: %w", err)
		}
		if !strings.HasSuffix(line, " "+self) || permissions != "r-xp" {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("release %s: %w", line, errno)
		}
	}
	return nil
}
