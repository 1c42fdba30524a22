package apiserver

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/store/prefixed"
)

// StorageFlags are the API server's flags about how objects are stored,
// wherever that is.
type StorageFlags struct {
	Prefix             string
	Backend            string
	MediaType          string
	CompactionInterval time.Duration // 0 is never
}

func newStorageFlags() StorageFlags {
	return StorageFlags{Prefix: prefixed.Usual, MediaType: runtime.ContentTypeProtobuf, CompactionInterval: 5 * time.Minute}
}

func (f *StorageFlags) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&f.Prefix, "etcd-prefix", f.Prefix, "what the keys of all objects in etcd begin with")
	fs.StringVar(&f.Backend, "storage-backend", f.Backend, "where objects are stored: etcd3, as always")
	fs.StringVar(&f.MediaType, "storage-media-type", f.MediaType, "how objects are stored: "+runtime.ContentTypeProtobuf+", as always; custom resources are stored as JSON")
	fs.DurationVar(&f.CompactionInterval, "etcd-compaction-interval", f.CompactionInterval, "how long etcd keeps superseded revisions at least before it is told to forget them; 0 is for ever")
}

func (f *StorageFlags) validate() []error {
	var errs []error
	if f.Backend != "" && f.Backend != "etcd3" {
		errs = append(errs, fmt.Errorf("--storage-backend=%s invalid, allowed values: etcd3", f.Backend))
	}
	if f.MediaType != "" && f.MediaType != runtime.ContentTypeProtobuf {
		errs = append(errs, fmt.Errorf("--storage-media-type %q invalid, allowed values: %s", f.MediaType, runtime.ContentTypeProtobuf))
	}
	if f.CompactionInterval < 0 {
		errs = append(errs, fmt.Errorf("--etcd-compaction-interval=%s: can not be negative", f.CompactionInterval))
	}
	return errs
}
