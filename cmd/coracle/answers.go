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

// answerPatience is how long an API server may take to answer a question
// about itself.
const answerPatience = 5 * time.Second

// adminContext is the context of a cluster, made from the keys in its data.
func adminContext(rec host.Record) (*clientcmdapi.Config, error) {
	settings, err := host.ReadSettings(rec.DataDir)
	if err != nil {
		return nil, err
	}
	o, err := clusterOptions(settings)
	if err != nil {
		return nil, err
	}
	p, err := cluster.NewControlPlane(o)
	if err != nil {
		return nil, err
	}
	return p.AdminKubeconfig(rec.Server), nil
}

// adminOf is the configuration of a client with the context that `up` wrote,
// or one like it when that is lost: then lost says so.
func adminOf(rec host.Record) (config *rest.Config, lost, err error) {
	config, lost = contextOf(rec)
	if lost != nil {
		made, err := adminContext(rec)
		if err == nil {
			config, err = clientcmd.NewDefaultClientConfig(*made, nil).ClientConfig()
		}
		if err != nil {
			return nil, lost, errors.Join(lost, err)
		}
		lost = fmt.Errorf("%w; write it again with coracle up --name=%s", lost, rec.Name)
	}
	config.Timeout = answerPatience
	return config, lost, nil
}

func contextOf(rec host.Record) (*rest.Config, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: rec.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: rec.Name}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("context %s of %s: %w", rec.Name, rec.Kubeconfig, err)
	}
	return config, nil
}

// answers reports, in bounded time, why the API server of a cluster whose
// process lives does not answer.
func answers(ctx context.Context, rec host.Record) error {
	config, _, err := adminOf(rec)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	err = client.Discovery().RESTClient().Get().AbsPath("/livez").Do(ctx).Error()
	var answer apierrors.APIStatus
	if err == nil || errors.As(err, &answer) {
		return nil
	}
	return fmt.Errorf("cluster %s does not answer at %s (%w): see its log in %s, or end it with coracle stop --name=%s", rec.Name, rec.Server, err, rec.DataDir, rec.Name)
}
