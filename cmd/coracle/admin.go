package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
)

// answerTimeout bounds requests to the API server about itself.
const answerTimeout = 5 * time.Second

// adminContext returns a kubeconfig for the cluster's admin, made from the keys
// in the data directory.
func adminContext(rec host.Record) (*clientcmdapi.Config, error) {
	settings, err := host.ReadSettings(rec.DataDir)
	if err != nil {
		return nil, err
	}
	if joined := settings.Options.Node.Joined; joined != nil {
		return nil, fmt.Errorf("the administrator's kubeconfig of cluster %s is not on this machine, which has a node of it: it is where the control plane is, at %s", rec.Name, joined.Server)
	}
	return cluster.AdminKubeconfig(settings.ClusterOptions(), rec.Server)
}

// adminOf returns the configuration of a client with the cluster's own keys or, on
// the machine of a node that has joined, with the identity of the node.
// The kubeconfig that up has written may belong to another user, so that
// nothing in it is used or run. lost is an error if it does not have the
// cluster's context any more.
func adminOf(rec host.Record) (config *rest.Config, lost, err error) {
	if rec.Node.Joined != nil {
		if config, err = identityOf(rec).Config(); err == nil {
			config.Timeout = answerTimeout
		}
		return config, nil, err
	}
	made, err := adminContext(rec)
	if err == nil {
		config, err = clientcmd.NewDefaultClientConfig(*made, nil).ClientConfig()
	}
	if err != nil {
		return nil, nil, err
	}
	config.Timeout = answerTimeout
	has, err := host.HasContext(rec.Kubeconfig, rec.Name)
	if err == nil && !has {
		err = fmt.Errorf("%s has no context %s", rec.Kubeconfig, rec.Name)
	}
	if err != nil {
		lost = fmt.Errorf("%w; write it again with coracle up --name=%s", err, rec.Name)
	}
	return config, lost, nil
}

// answers returns an error if the API server does not answer within
// answerTimeout.
func answers(ctx context.Context, rec host.Record) error {
	config, _, err := adminOf(rec)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err = client.Discovery().RESTClient().Get().AbsPath("/livez").Do(ctx).Error()
	var answer apierrors.APIStatus
	if err == nil || errors.As(err, &answer) {
		return nil
	}
	return fmt.Errorf("cluster %s does not answer at %s (%w): see its log in %s, or end it with coracle stop --name=%s", rec.Name, rec.Server, err, rec.DataDir, rec.Name)
}
