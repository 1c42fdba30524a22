package replicaset_test

import "k8s.io/apimachinery/pkg/watch"

type watchInterface = watch.Interface

// delayedWatch delays events until a channel is closed.
type delayedWatch struct {
	watch.Interface
	events chan watch.Event
}

func (d delayedWatch) ResultChan() <-chan watch.Event { return d.events }

func delayed(w watch.Interface, hold <-chan struct{}) watch.Interface {
	d := delayedWatch{w, make(chan watch.Event, 1000)}
	go func() {
		defer close(d.events)
		<-hold
		for e := range w.ResultChan() {
			d.events <- e
		}
	}()
	return d
}
