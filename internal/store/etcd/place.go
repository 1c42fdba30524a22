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

// placeEvery is the time between two looks at where the data are.
const placeEvery = 5 * time.Second

// reportPlace shows, until ctx ends, that the data which an etcd runs on are no
// longer where they were when it began, as when their disk is unmounted. The
// etcd goes on with the files that it has open, and finds nothing, or something
// else, when it is started again.
func reportPlace(ctx context.Context, dir string) {
	member := filepath.Join(dir, "member")
	began, _ := os.Stat(member) // nothing is another directory than what may come
	again := time.NewTicker(placeEvery)
	defer again.Stop()
	for shown := ""; ; {
		message := ""
		err := sameDirectory(member, began)
		if err != nil {
			err = fmt.Errorf("the data of etcd are no longer in %s (%w): what is stored now may be lost; put them back, and start the cluster again", dir, err)
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

// sameDirectory is an error if another directory than before, or none, has a path.
func sameDirectory(path string, before fs.FileInfo) error {
	now, err := os.Stat(path)
	if err == nil && !os.SameFile(before, now) {
		err = fmt.Errorf("%s is another directory than before", path)
	}
	return err
}
