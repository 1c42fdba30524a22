package netdump

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/coracle-io/coracle/internal/supervise"
)

// Watch returns a channel that receives after the kernel has told of a change to one of
// the groups (RTNLGRP_*) of the network namespace, until ctx ends. Changes that it was not
// read for count as one.
func Watch(ctx context.Context, groups ...uint) (<-chan struct{}, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, groups...)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, socket.Close)
	changed := make(chan struct{}, 1)
	supervise.Go(ctx, func() {
		for {
			_, _, err := socket.Receive()
			switch {
			case ctx.Err() != nil:
				return
			case err == nil, errors.Is(err, unix.ENOBUFS): // that messages were lost is one, too
			case errors.Is(err, unix.EINTR):
				continue
			default:
				supervise.Fail(ctx, fmt.Errorf("watch the kernel's network: %w", err))
				return
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	return changed, nil
}
