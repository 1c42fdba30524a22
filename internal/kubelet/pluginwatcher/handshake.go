package pluginwatcher

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/coracle-io/coracle/internal/printable"
)

// Upstream's bounds on the time of a plugin's responses.
const (
	infoTimeout   = 10 * time.Second
	notifyTimeout = 5 * time.Second
)

// Bounds of what a plugin says about itself.
const (
	maxMessage  = 64 << 10 // bytes
	maxName     = 253
	maxPath     = 4096
	maxVersions = 32
)

// info asks a plugin what it is.
func info(ctx context.Context, client registerapi.RegistrationClient, socket string) (Plugin, error) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	answer, err := client.GetInfo(ctx, &registerapi.InfoRequest{})
	if err != nil {
		return Plugin{}, err
	}
	p := Plugin{Type: answer.GetType(), Name: answer.GetName(), Endpoint: answer.GetEndpoint(), Versions: answer.GetSupportedVersions()}
	if p.Endpoint == "" {
		p.Endpoint = socket
	}
	return p, p.check()
}

// check returns an error if a plugin's response is invalid for every handler.
func (p *Plugin) check() error {
	if len(p.Versions) > maxVersions {
		return fmt.Errorf("the plugin has %d versions, at most %d are allowed", len(p.Versions), maxVersions)
	}
	if p.Name == "" {
		return errors.New("the plugin has no name")
	}
	for _, text := range append([]string{p.Type, p.Name}, p.Versions...) {
		if len(text) > maxName || printable.Line(text) != text {
			return fmt.Errorf("the plugin has an invalid type, name or version: %.64q", text)
		}
	}
	if len(p.Endpoint) > maxPath || !filepath.IsAbs(p.Endpoint) || strings.ContainsRune(p.Endpoint, 0) {
		return fmt.Errorf("the plugin has an invalid endpoint: %.64q", p.Endpoint)
	}
	return nil
}

// notify tells a plugin that it is registered, or why it is not.
func notify(ctx context.Context, client registerapi.RegistrationClient, reason error) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	status := &registerapi.RegistrationStatus{PluginRegistered: reason == nil}
	if reason != nil {
		status.Error = reason.Error()
	}
	_, err := client.NotifyRegistrationStatus(ctx, status)
	return err
}
