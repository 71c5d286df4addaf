"""How a sensor behaves: its update period, its response to the load, its gradient and intercept (docs/characterise.md).

Reading order: ``results`` holds what goes in and what comes out, ``characterise`` puts the estimators together, and
``_host_clock`` their clocks. The response kernel is fitted in ``kernel_fit``: ``_initial_guess`` says where to begin,
``_forward`` is the model and its least squares, ``_free_shape`` a kernel of any shape to judge it by, ``_covariance``
and ``_description`` find its intervals, ``_model_selection`` chooses between families, and ``kernel`` is what comes of
it. ``_kernel_from_load`` does it where only load stamps are known. ``gain`` is the line between power and reading,
``align`` lays one curve over another, ``_step_response`` is the answer to a single jump, and ``registers`` holds
several registers of one device against each other.
"""
