package sandbox_test

func helper() {}
