package etcd

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/coracle-io/coracle/internal/supervise"
)

// dataGoneInterval is the time between two checks of the data directory.
const dataGoneInterval = 5 * time.Second

// reportDataGone reports the condition DataGone until ctx is done: the data
// directory is not the one that etcd was started with, for example because its
// disk was unmounted. etcd keeps running on its open files, but after a restart
// it would find no data or other data.
func reportDataGone(ctx context.Context, dir string) {
	member := filepath.Join(dir, "member")
	began, _ := os.Stat(member) // on an error, any directory that appears later is another one
	again := time.NewTicker(dataGoneInterval)
	defer again.Stop()
	for shown := ""; ; {
		message := ""
		err := sameDirectory(member, began)
		if err != nil {
			err = fmt.Errorf("etcd's data is no longer in %s (%w): new writes may be lost; restore the directory and restart the cluster", dir, err)
			message = err.Error()
		}
		if message != shown {
			supervise.Report(ctx, "DataGone", err)
			shown = message
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// sameDirectory returns an error if path is no longer the directory before.
func sameDirectory(path string, before fs.FileInfo) error {
	now, err := os.Stat(path)
	if err == nil && !os.SameFile(before, now) {
		err = fmt.Errorf("%s is now another directory", path)
	}
	return err
}
