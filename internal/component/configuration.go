package component

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/util/filesystem"
	"k8s.io/klog/v2"
)

// decodeConfiguration reads a configuration of the API group
// apiserver.config.k8s.io. Fields that it does not have are refused.
func decodeConfiguration[T any](content []byte) (*T, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	decoded, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), content)
	if err != nil {
		return nil, err
	}
	configuration, ok := any(decoded).(*T)
	if !ok {
		return nil, fmt.Errorf("it is a %T", decoded)
	}
	return configuration, nil
}

// follow calls change with what a file holds, each time that this is something
// else than was last taken over, until ctx ends. It looks at least once a
// minute. What change reports is logged.
func follow(ctx context.Context, path string, content []byte, change func(content []byte) error) error {
	log := klog.FromContext(ctx)
	filesystem.WatchUntil(ctx, time.Minute, path, func() {
		now, err := os.ReadFile(path)
		if err == nil && (len(now) == 0 || bytes.Equal(now, content)) {
			return // it is being written, or is as it was
		}
		if err == nil {
			err = change(now)
		}
		if err != nil {
			log.Error(err, "The configuration stays as it was", "file", path)
			return
		}
		content = now
		log.Info("The configuration has been read again", "file", path)
	}, func(err error) { log.Error(err, "Cannot watch the configuration", "file", path) })
	return nil
}
