package apiserver

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

	"github.com/coracle-io/coracle/internal/apiserver/kubernetesservice"
	"github.com/coracle-io/coracle/internal/component/base"
)

// decodeConfiguration decodes a configuration of the API group
// apiserver.config.k8s.io. It refuses unknown fields.
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

// reloadCounts counts reloads of a configuration, by the server's ID.
type reloadCounts struct {
	register    func()
	read, again func(server, content string)
	failed      func(server string)
}

// followed is the file of a flag that is reloaded when it changes.
type followed struct {
	flag string
	run  func(context.Context) error
}

// configure calls begin with the content of a flag's file and, while the server
// runs, change with each new content. Errors of change are logged and leave the
// configuration as it was.
func (a *Server) configure(flag, path string, counts reloadCounts, begin, change func(content []byte) error) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	if err := begin(content); err != nil {
		return fmt.Errorf("--%s %s: %w", flag, path, err)
	}
	server, err := serverID()
	if err != nil {
		return err
	}
	counts.register()
	counts.read(server, string(content))
	a.follow = append(a.follow, followed{flag, func(ctx context.Context) error {
		return follow(ctx, path, content, func(content []byte) error {
			if err := change(content); err != nil {
				counts.failed(server)
				return err
			}
			counts.again(server, string(content))
			return nil
		})
	}})
	return nil
}

// serverID returns the identity of this host's API server, for metrics.
func serverID() (string, error) {
	host, err := base.HostName("")
	return kubernetesservice.LeaseName(host), err
}

// follow calls change with the content of a file each time that it differs from
// the content last applied, until ctx ends. It checks at least once a minute.
// Errors of change are logged.
func follow(ctx context.Context, path string, content []byte, change func(content []byte) error) error {
	log := klog.FromContext(ctx)
	filesystem.WatchUntil(ctx, time.Minute, path, func() {
		now, err := os.ReadFile(path)
		if err == nil && (len(now) == 0 || bytes.Equal(now, content)) {
			return // being written, or unchanged
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
