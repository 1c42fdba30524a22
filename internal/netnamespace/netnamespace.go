// Package netnamespace does work in other network namespaces.
package netnamespace

import (
	"runtime"

	"github.com/vishvananda/netns"
)

// Do calls do in the network namespace of a file descriptor, on one thread; 0 is the
// namespace of the calling thread. Sockets and processes that do makes stay there.
func Do(fd int, do func() error) error {
	runtime.LockOSThread()
	if fd == 0 {
		defer runtime.UnlockOSThread()
		return do()
	}
	own, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() {
		if netns.Set(own) == nil { // otherwise the thread ends with the goroutine
			runtime.UnlockOSThread()
		}
		_ = own.Close()
	}()
	if err := netns.Set(netns.NsHandle(fd)); err != nil {
		return err
	}
	return do()
}
